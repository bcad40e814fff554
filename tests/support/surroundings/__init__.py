"""Environments of tests: servers, brokers, disks, networks, data."""
