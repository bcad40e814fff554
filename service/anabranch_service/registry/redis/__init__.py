"""The registry's keys in Redis, one module a resource."""
