"""The allocation of CPU as the JAQPOT paper prints it: count-based windows, rates in steady state.

Source: "JAQPOT" (join adaptation at query plan level using path productivity for optimising
throughput). Resources are probes per second: a tuple that probes one state takes one. Storing and
expiry cost nothing.
"""
