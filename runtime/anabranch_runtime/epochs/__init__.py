"""State changes at the start of an epoch (consecutive batches of one ruleset), and per batch."""
