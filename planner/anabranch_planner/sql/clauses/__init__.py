"""Joins and set operations of a parsed statement."""
