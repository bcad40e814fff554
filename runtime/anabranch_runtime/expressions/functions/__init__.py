"""Kernels of Spark's functions, by kinds of values."""
