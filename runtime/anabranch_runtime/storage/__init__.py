"""Storage on disk or in an object store: JSON documents, segments of stores, their caches."""
