"""Reports of the driver: heartbeat, source progress, interim measurements, state, telemetry."""
