"""Progress of event time: idle streams, and limits of event times in the future."""
