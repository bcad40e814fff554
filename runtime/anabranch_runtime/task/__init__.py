"""One task of a batch: reads and measures arrivals, stores them, probes, writes results."""
