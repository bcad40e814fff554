"""Limits on the rows of a batch: by time, memory, and the pace of snapshots."""
