"""Checks of streams' sources at registration, and parsing of their expressions."""
