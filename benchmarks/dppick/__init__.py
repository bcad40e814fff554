"""Probe orders of one join operator, chosen while it runs (algorithm dpPick): ``python -m
benchmarks.dppick``.

* ``orders``: TPC-DS from 24 initial orders, with dpPick, its rivals and the exact search.
* ``ablations``: the same with dpPick without a part of its cost or without forecasts.
* ``sweeps``: the same with different periods T and lengths L of the series of measurements.
* ``drifting``: generated streams whose best order changes.
* ``decisions``: the time of one decision.

Every run must have DuckDB's number of results. Periods are counted in batches, so that repeated
runs have the same counts and orders; for CPU times, the algorithms run in turns. Source: Hu and
Qiu, "Runtime-optimized Multi-way Stream Join Operator for Large-scale Streaming data", section 5.
"""
