"""Sources and sinks: their formats and options, and the access policy for registrations."""
