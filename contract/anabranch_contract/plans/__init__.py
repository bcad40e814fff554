"""Plans of an optimiser, and the rulesets that workers run by."""
