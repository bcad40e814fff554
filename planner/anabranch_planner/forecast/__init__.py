"""Forecasts of measured statistics: outlier cleaning, exponential smoothing with a trend."""
