"""From bound conditions to the canonical :class:`JoinQuery` that is planned."""
