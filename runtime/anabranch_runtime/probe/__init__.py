"""Probes of one batch: lookups of partial results in the stores, rule after rule."""
