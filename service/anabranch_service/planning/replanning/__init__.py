"""Replanning within an epoch: a *revision* replaces the running ruleset, over the same stores."""
