"""Spark's own sources: per source, a Spark query (ingest query) writes its rows to local files."""
