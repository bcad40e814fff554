"""Benchmarks of placement and of orders by value (PMJoin)."""
