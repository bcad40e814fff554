"""Benchmarks of connectors against recorded files."""
