"""The driver of a pipeline: runs and commits batches, begins and ends epochs, merges segments."""
