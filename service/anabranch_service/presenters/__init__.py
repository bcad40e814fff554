"""Conversion of records, stores and statistics into REST answers and Prometheus metrics."""
