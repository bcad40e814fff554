"""State transitions at the start of an epoch (a run of batches under one ruleset) and per batch."""
