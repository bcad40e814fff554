"""Mistakes in the wording of a statement: missing, superfluous and misspelt words."""
