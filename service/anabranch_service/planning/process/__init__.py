"""Planner in a process of its own, which makes each plan from the last one."""
