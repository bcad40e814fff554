"""Construction of problems: indices and prices, the share of each query, all queries."""
