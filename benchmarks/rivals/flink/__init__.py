"""Flink as a rival engine: SQL statements, jobs, and their results."""
