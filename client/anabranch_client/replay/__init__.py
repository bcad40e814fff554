"""Replays: scenarios played on the real service and runtime; the demo and its oracle."""
