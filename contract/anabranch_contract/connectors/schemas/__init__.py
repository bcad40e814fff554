"""Schemas of messages: Avro and Protobuf, plain and from a schema registry."""
