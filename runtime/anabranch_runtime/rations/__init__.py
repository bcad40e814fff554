"""Load shedding: rations of probes per goal, their effect, and catch-up of withheld results."""
