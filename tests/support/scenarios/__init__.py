"""Scenarios: random runs of a pipeline, the faults in them, and their seeds."""
