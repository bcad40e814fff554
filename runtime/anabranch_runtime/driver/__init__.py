"""The driver of a pipeline: batches, epochs, merges of segments, processes for views and sinks."""
