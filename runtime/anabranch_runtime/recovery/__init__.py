"""Restart of a pipeline: which state is whole, Spark's logs, the journal, kept rulesets."""
