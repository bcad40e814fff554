"""Changes of the state when an epoch begins, and after each batch. Pure functions."""
