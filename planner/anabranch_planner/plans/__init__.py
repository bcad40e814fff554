"""From queries and statistics to a plan, its ruleset, and the cost shares of queries."""
