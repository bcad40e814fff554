"""Test of a source before registration: sample rows, checked against the stream's columns."""
