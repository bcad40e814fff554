"""Oracles: expected results, computed by slow and obvious algorithms."""
