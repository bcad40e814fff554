"""Probes of one batch: partial results look up their matches in the stores, rule after rule."""
