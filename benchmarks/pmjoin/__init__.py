"""Benchmarks of placement, hot keys and probe orders per substream (ideas of the PMJoin paper)."""
