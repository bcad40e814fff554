"""Worlds: parts of the product that run, up to all of it."""
