"""Supervision of a pipeline's processes by ``anabranch up``: start, restart, stop."""
