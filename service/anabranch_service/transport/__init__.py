"""Between the socket and the routes: hosts, limits, what is measured and logged."""
