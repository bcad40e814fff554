"""Results as tables: reading of result files as of one batch, SQL over them in other processes."""
