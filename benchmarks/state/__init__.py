"""Benchmarks of the state store."""
