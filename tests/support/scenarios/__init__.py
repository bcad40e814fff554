"""Scenarios: drawn runs, what befalls them, and their seeds."""
