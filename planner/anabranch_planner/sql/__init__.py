"""From SQL, or a structured document, to the planner's :class:`JoinQuery`."""
