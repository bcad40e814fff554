"""Construction of problems: indices and prices, each query's part, all queries together."""
