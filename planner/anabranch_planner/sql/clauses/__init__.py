"""Rewriting of clauses as simpler ones, before names are known: joins, VALUES, QUALIFY, totals."""
