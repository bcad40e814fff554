"""Storage of the registry in Redis: streams, queries, plans, and reports of the runtime."""
