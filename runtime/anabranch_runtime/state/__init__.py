"""Values of a pipeline's committed state, as its manifest (snapshot after a batch) has them."""
