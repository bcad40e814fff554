"""Routes of queries: registration, lists, runs, results, explanations."""
