"""Allocation policies for the goals of a problem file, at one budget of CPU time."""
