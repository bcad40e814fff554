"""Plans derived from the running plan: incremental planning, revisions, dropped queries."""
