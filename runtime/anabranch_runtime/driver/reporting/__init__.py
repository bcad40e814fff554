"""Reports of the driver: heartbeat, progress of sources, periods, state, telemetry."""
