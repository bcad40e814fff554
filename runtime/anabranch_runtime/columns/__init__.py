"""Helpers for Arrow arrays and nested values; Arrow's type of each of Spark's types."""
