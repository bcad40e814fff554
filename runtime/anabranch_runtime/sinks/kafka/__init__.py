"""Kafka topics as sinks of the runtime's own, exactly once by transactions."""
