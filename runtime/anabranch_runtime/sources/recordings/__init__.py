"""Recorded streams: Parquet files replayed with a fixed number of rows per batch."""
