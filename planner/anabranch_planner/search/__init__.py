"""The problem as a graph of states, and the search for its cheapest routings."""
