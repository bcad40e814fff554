"""Decorrelation: subqueries in expressions (scalar subqueries, EXISTS, IN) become joins."""
