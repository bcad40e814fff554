"""Cases: queries, problems, plans, rulesets and states, by hand or drawn."""
