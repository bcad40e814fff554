"""Logical plans of SQL statements, and their conversion to multi-way joins (TSC)."""
