"""The registry: records, their store in Redis, and the bounds of registrations."""
