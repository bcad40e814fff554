"""Skewed keys: substreams with probe orders of their own, and values that stores exclude."""
