"""Between the socket and the routes: host checks, limits, metrics and logs."""
