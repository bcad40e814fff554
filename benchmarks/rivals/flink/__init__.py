"""Flink beside us: its statements, its jobs, and their answers."""
