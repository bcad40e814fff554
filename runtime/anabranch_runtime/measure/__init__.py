"""Measurements: epoch statistics, join samples, interim measurements, drift, state report."""
