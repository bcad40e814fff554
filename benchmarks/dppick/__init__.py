"""Probe orders of one operator, chosen while it runs (dpPick): ``python -m benchmarks.dppick``.

* ``orders``: TPC-DS, from 24 initial orders, by dpPick, its rivals and the exact search.
* ``ablations``: the same without a part of the cost or without forecasts.
* ``sweeps``: the period T and the length L of series.
* ``drifting``: generated streams whose best order changes.
* ``decisions``: how long a decision takes.

Every run has to find DuckDB's number of results. Periods are batches, so that counts and orders
repeat; seconds are measured in turns. Source: Hu and Qiu, "Runtime-optimized Multi-way Stream Join
Operator for Large-scale Streaming data", section 5.
"""
