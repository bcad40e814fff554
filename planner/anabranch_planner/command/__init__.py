"""Command line of the planner: reads a planning problem from a file and prints its plan."""
