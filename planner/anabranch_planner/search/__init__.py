"""The optimisation problem as a graph of partial results, and its solution."""
