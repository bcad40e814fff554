"""Construction of the planning problem's graph: its states, edges and prices, query by query."""
