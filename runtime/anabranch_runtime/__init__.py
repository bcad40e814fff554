"""The runtime: a Structured Streaming pipeline that stores and probes tuples by a ruleset."""
