"""What a plan costs: statistics, selectivities, the cost model, and a plan priced anew."""
