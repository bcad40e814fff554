"""Explanations and comparisons of plans, made or assumed."""
