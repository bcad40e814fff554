"""Rewriting of SQL clauses as simpler ones: joins, set operations, VALUES, rankings."""
