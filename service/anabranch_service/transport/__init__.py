"""HTTP layers around the routes: host checks, limits, metrics, logs and errors."""
