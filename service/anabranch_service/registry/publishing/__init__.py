"""Writes of the leading service: epochs, held plans, history, and its lease."""
