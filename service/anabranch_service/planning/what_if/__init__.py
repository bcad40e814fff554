"""Dry runs, explanations of plans, and differences between plans."""
