"""Everyday statements of some domains, over streams of their own."""
