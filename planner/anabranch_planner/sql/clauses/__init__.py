"""Clauses of a parsed statement, rewritten as simpler SQL: joins, set operations, VALUES, ranks."""
