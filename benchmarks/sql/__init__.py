"""Benchmarks of expressions of SQL, beside DuckDB."""
