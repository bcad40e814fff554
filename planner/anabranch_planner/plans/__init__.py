"""Joint plans and their rulesets: optimisers, backfills, hot values, queries' shares of cost."""
