"""Changes of the state at the start of an epoch (batches of one ruleset) and after each batch."""
