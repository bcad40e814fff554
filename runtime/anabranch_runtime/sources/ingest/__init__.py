"""Sources of Spark's: each read by an ingest query of its own, whose batches land on disk."""
