"""Probe orders of one multi-way join operator (dpPick)."""
