"""Measurements for planner and reports: statistics, join selectivities, drift, stored bytes."""
