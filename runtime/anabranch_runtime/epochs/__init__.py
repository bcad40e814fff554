"""What happens to the state when an epoch begins, and after each batch. Pure functions."""
