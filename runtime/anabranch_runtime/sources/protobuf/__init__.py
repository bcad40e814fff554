"""Protobuf messages as sources: their decoding to columns."""
