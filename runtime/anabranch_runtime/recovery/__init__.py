"""Recovery of a pipeline: newest intact state, journal, stored rulesets."""
