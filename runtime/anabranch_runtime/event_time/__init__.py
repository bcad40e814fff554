"""Progress of event time: idle streams, and the limit above which event times are rejected."""
