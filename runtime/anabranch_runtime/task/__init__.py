"""One task of one batch: take in, store, probe, write."""
