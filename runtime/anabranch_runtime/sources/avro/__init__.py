"""Avro messages as sources: schemas of a registry, and their decoding to columns."""
