"""Benchmarks of the runtime: each module is one, run as ``python -m benchmarks.runtime.<name>``.

* ``sharing``: five and ten TPC-H queries, planned jointly, shared naively, or planned separately.
* ``queries``: throughput by number of queries; cost of a query whose joins already run.
* ``rewire``: time of the first batch under a new ruleset, relative to its neighbours.
* ``state_size``: throughput with millions of stored tuples.
* ``fixed_cost``: time of nearly empty batches with fifty queries, relative to Spark doing nothing.
* ``latency``: time from a tuple's arrival to the commit of its results, at a given rate, open loop.
* ``ingest``: files read by our sources and by Spark's.
* ``adaptation``: effect of a change of the input on latency, with and without adaptation.

Every run compares its results with an oracle's before it reports a figure. Figures of one line were
measured in one run, interleaved, so that disturbances of the machine affect all of them. ``python
-m benchmarks.runtime`` runs all benchmarks, with one line of output each.
"""
