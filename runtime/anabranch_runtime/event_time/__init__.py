"""Progress of event time: idle streams, and how far ahead of it tuples may be."""
