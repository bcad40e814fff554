"""Files that declare queries: YAML, JSON lines, or SQL."""
