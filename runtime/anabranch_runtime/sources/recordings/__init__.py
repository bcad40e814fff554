"""Recorded streams: their files and the reader of all recordings."""
