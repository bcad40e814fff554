"""One task of one batch: reads arrivals, stores them, probes the stores, and writes results."""
