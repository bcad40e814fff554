"""OpenLineage events: which columns of which streams a query's results are made of."""
