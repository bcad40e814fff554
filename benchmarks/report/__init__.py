"""Pages of the documentation with the figures of benchmarks."""
