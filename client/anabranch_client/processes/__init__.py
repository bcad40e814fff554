"""A pipeline as processes: Redis, the service, the runtime."""
