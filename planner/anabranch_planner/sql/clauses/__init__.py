"""Clauses of a statement that stand for a FROM of their own."""
