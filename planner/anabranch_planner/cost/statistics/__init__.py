"""Statistics that plans are priced by, in layers: measured, sampled, forecast, steady."""
