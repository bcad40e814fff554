"""Sources read by Spark: for each, a Spark query (ingest query) writes the rows to local files."""
