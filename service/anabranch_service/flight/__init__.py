"""Arrow Flight SQL over the tables of queries."""
