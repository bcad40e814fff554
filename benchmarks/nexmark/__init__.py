"""Nexmark: its 24 queries as continuous queries, checked against DuckDB, and their joint cost."""
