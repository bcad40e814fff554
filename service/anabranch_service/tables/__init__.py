"""Reading of results as tables: as of one batch, by SQL, in separate processes."""
