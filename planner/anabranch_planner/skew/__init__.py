"""Skewed keys: probe orders per group of key values, and values excluded from stores."""
