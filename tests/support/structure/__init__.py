"""Measures of the code's structure and wording, and the list of accepted violations."""
