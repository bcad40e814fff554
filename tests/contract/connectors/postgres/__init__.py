"""Tests of options and descriptions of PostgreSQL tables."""
