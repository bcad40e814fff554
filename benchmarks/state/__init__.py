"""Benchmarks of UMJoin's operator and of the runtime's stored state."""
