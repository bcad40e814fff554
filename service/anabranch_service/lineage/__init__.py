"""OpenLineage events, which report the source columns of a query's result columns."""
