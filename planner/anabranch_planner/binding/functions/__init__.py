"""Typed calls of SQL functions, one module per kind of values: signatures, casts, rewritings."""
