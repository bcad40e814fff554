"""Spark's writers and readers of Delta and Iceberg tables, in a Spark that supports both."""
