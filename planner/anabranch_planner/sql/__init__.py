"""Parsing of SQL, in Spark's and other dialects, to queries with unresolved names."""
