"""Algorithms of the five papers that no pipeline runs: rivals, ablations, simulations, examples."""
