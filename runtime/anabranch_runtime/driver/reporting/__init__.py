"""Reports of the driver: heartbeat, source progress, measurements, drifts, state, telemetry."""
