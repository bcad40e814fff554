"""Costs and savings of several hosts. ``python -m benchmarks.cluster.<benchmark> [--json]``."""
