"""Tags: many filters over the rows of one store (ADR 0074)."""
