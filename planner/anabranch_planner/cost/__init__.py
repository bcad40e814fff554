"""Prices of plans: cardinalities, selectivities, the cost model; validation of priced plans."""
