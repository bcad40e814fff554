"""Probes under CPU shortage: rations per goal, their effect, and probes made up for later."""
