"""Load shedding: division of limited CPU time among the probes of queries."""
