"""Pathway as a rival engine, in a separate environment."""
