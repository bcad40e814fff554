"""Binding of parsed SQL statements: name resolution, types, output column names and views."""
