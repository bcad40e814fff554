"""Test cases: queries, problems, plans, rulesets and states, hand-written or random."""
