"""Sinks that are tables of a lake: Delta and Iceberg."""
