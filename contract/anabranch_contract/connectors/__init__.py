"""Sources and sinks: their formats and options, and what a registration may ask for."""
