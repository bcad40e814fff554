"""Load shedding: how limited CPU time is divided among the probes of competing queries."""
