"""Statistics for pricing plans: measurements, samples, forecasts, hysteresis."""
