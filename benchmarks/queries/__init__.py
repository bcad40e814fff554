"""Benchmarks of many live queries: cost of one more query, and of all per epoch and batch."""
