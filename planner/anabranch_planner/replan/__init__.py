"""Plans derived from the running plan: incremental planning, revisions, removal of queries."""
