"""From queries and statistics to a plan, its ruleset, and who pays for what."""
