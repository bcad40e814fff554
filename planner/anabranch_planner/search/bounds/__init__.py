"""Bounds for the integer program: cuts, lower bounds, and removal of unprofitable elements."""
