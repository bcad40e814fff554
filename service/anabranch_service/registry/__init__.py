"""The registry: records of streams and queries, their storage in Redis, limits of registrations."""
