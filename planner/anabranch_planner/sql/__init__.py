"""Parsing of SQL, in Spark's and other dialects, into queries whose names are not resolved yet."""
