"""Measurements: statistics of an epoch, samples of joins, periods, drift, report of the state."""
