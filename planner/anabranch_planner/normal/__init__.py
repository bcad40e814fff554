"""From bound queries to the canonical :class:`JoinQuery`: key classes, time bounds, residuals."""
