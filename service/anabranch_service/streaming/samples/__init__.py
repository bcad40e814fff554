"""A few rows of a source, and whether they fit a stream's columns, before it is registered."""
