"""Recovery of a pipeline: newest intact state, Spark's checkpoint, journal, stored rulesets."""
