"""Oracles: the right answers, by slow and obvious means."""
