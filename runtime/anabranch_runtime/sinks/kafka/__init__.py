"""Kafka topics as sinks, written by the runtime itself, exactly once by transactions."""
