"""Where tuples come from."""
