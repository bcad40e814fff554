"""Columns: types, expressions, keys and their indexes, a whole vector at a time."""
