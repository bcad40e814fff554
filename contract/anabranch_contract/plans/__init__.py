"""What is decided: the plan of an optimiser, and the ruleset that workers run by."""
