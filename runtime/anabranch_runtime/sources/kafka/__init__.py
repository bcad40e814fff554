"""Kafka topics as sources: clients, the feed that plans offsets, the reader of planned offsets."""
