"""A pipeline's processes: Redis, the service, the runtime."""
