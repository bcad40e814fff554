"""Bounds of the integer program: cuts, lower bounds, and elements that can't pay."""
