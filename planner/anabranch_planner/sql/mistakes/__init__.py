"""Mistakes in a statement's wording: wrong first words, missing, superfluous and misspelt words."""
