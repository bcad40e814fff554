"""Test environments: running parts of the product, up to a whole pipeline."""
