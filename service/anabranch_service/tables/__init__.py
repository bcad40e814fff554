"""Reading of results as tables: as of one batch, by SQL, in processes of their own."""
