"""Rows pushed to streams, server-sent events of results, and tests of sources."""
