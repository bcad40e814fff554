"""Search for the cheapest plan: the problem as a graph of partial results, and its solution."""
