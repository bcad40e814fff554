"""Values of a pipeline's committed state, as a manifest contains them."""
