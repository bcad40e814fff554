"""Storage on disk or in an object store: documents, segments of stores, caches of hosts, locks."""
