"""Measures of the tree's structure and wording, and the list of accepted violations."""
