"""Tests of PostgreSQL tables as sources."""
