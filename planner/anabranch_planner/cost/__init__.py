"""The cost of plans: statistics, selectivities, the cost model, and validation."""
