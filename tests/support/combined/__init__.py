"""Random queries of all kinds together in one pipeline, over random streams of all kinds."""
