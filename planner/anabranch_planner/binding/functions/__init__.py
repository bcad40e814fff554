"""Functions with operations of their own: signatures, by kinds of values."""
