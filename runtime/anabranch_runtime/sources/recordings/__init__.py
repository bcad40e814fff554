"""Recorded streams: converted files, and the Spark source of all recordings."""
