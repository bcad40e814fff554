"""Registration of sources: checks, and parsing of their expressions."""
