"""Benchmarks of sources and sinks: Kafka, Delta and Iceberg tables, PostgreSQL."""
