"""Typed calls of functions, by kinds of values: signatures, casts of arguments, rewriting."""
