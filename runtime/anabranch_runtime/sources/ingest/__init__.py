"""Spark's own sources: an ingest query per source reads it and lands its batches on disk."""
