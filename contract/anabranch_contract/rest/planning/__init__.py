"""Bodies of plans: dry runs, epochs, revisions, settings, statistics."""
