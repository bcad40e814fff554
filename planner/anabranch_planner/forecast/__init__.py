"""Forecasts of measured statistics: series, robust cleaning, exponential smoothing with a trend."""
