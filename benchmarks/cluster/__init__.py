"""What several hosts cost and spare. ``python -m benchmarks.cluster.<benchmark> [--json]``."""
