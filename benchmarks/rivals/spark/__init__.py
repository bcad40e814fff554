"""Spark's stream-stream joins as a rival engine, in this project's environment."""
