"""Sources of tuples."""
