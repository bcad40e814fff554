"""Sinks of results: delivery by batch or in groups, parked results, live tails, ledgers."""
