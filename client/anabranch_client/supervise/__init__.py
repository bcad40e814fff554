"""Supervision of a pipeline's processes: what ``anabranch up`` does while it runs."""
