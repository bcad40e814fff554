"""Helpers for Arrow arrays, and the conversion between Spark's and Arrow's types."""
