"""Probe orders of one multi-way join operator: dpPick, its rivals and its ablations."""
