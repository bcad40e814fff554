"""Changes of streams in use and their checks: columns, retention, rereads of tables."""
