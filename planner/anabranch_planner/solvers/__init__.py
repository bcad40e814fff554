"""Solvers of mixed-integer programs behind one interface."""
