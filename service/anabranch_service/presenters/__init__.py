"""Records, stores and statistics as the REST API and the metrics show them."""
