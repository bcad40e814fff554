"""The committed state of a pipeline, and what its recovery goes by."""
