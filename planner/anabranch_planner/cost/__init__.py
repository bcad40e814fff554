"""Prices of plans: cardinalities, selectivities, the cost model; validation and parts of plans."""
