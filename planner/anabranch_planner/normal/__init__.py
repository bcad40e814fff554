"""From bound queries to the canonical :class:`JoinQuery`, the input of planning."""
