"""Values of a pipeline's committed state, as a manifest (the state after a batch) has them."""
