"""Sinks of results: delivery by batch or in groups, undelivered results, live tails, ledgers."""
