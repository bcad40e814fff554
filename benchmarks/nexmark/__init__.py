"""Nexmark: its 24 queries as continuous queries, their exactness and what they cost together."""
