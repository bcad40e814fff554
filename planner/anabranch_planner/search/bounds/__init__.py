"""Bounds of the planning problem's integer program: cuts, lower bounds, unprofitable elements."""
