"""Plans of an optimiser, and the rulesets that workers execute."""
