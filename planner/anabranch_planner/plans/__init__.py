"""Planning of queries, compilation of plans to rulesets, and cost shares of queries."""
