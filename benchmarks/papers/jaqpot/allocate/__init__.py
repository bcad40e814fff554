"""Allocation policies over the probe forest of a problem file, at one budget."""
