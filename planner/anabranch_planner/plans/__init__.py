"""Joint plans, their decisions on backfills and hot values, rulesets, shares of cost of queries."""
