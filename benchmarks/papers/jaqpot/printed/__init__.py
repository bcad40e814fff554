"""Allocation of CPU time exactly as the JAQPOT paper prints it: count-based windows, rates in
steady state.

Source: "JAQPOT" (join adaptation at query plan level using path productivity for optimising
throughput). Resources are measured in probes per second; a probe is one tuple that probes one
state. Storing and expiry cost nothing.
"""
