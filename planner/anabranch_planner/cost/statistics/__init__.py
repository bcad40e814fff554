"""Statistics of data for pricing plans: measurements, samples, forecasts, hysteresis."""
