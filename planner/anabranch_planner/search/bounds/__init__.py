"""Bounds of the integer program: cuts, lower bounds, and what can't pay."""
