"""Parsing of SQL, also of other dialects and their functions, into queries of unresolved names."""
