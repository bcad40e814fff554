"""Revisions of a running ruleset by the newest measurements."""
