"""Surroundings: servers, disks, data."""
