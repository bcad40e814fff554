"""Sinks: destinations of query results."""
