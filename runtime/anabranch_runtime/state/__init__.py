"""The committed state of a pipeline, and the records its recovery reads."""
