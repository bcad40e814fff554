"""Pathway, in an environment of its own."""
