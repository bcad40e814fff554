"""Parsing of SQL (Spark's dialect or others) into queries without resolved names."""
