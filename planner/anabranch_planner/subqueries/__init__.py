"""Subqueries of expressions as joins: scalar subqueries, EXISTS, IN (decorrelation)."""
