"""Directories of files as feeds: log of found files, the feed, readers of parts of files."""
