"""The runtime: a Structured Streaming pipeline that joins streams by a published execution plan."""
