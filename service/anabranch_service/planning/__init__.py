"""From registered queries to published rulesets: the epoch loop, its plans, what they cost."""
