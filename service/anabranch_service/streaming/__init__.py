"""Rows in and results out, as they come."""
