"""Probes of one batch: the paths that partial results take through the stores."""
