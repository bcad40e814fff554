"""Queries: types, expressions, streams, joins, and their post-join parts."""
