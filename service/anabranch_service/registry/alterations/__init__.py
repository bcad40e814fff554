"""Checks of changes to streams in use: rereads of tables, and added columns."""
