"""OpenLineage events: the source columns of a query's results."""
