"""Skewed keys: probe orders per group of key values, and values that stores exclude."""
