"""Tags: the filters of queries that share a store, tested on rows' predicate sets (ADR 0074)."""
