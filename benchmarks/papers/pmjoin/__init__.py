"""Placement of joins of streams that arrive at different hosts (PMJoin), by its rate model."""
