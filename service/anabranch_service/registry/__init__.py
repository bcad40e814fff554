"""The registry: records of streams, queries, runs and functions; checks of registrations."""
