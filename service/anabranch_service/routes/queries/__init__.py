"""Routes of queries: registration, lists, runs, results, explanation."""
