"""Mistakes in a statement: wrong first words, missing and misspelt words, further errors."""
