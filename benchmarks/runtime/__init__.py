"""The runtime measured: each module is a benchmark, ``python -m benchmarks.runtime.<name>``.

* ``sharing``: five and ten TPC-H queries, planned jointly, shared naively, or apart.
* ``queries``: throughput against the number of queries; a query whose joins already run.
* ``rewire``: batches that begin under other rules, against their neighbours.
* ``state_size``: throughput with millions of stored tuples.
* ``fixed_cost``: nearly empty batches with fifty queries, against Spark doing nothing.
* ``latency``: from a tuple's arrival to its results' commit at a given rate, open loop.
* ``ingest``: files read by ours and by Spark's sources.
* ``adaptation``: what a change of the input does to latency, with and without adaptation.

Every run compares its results with an oracle's before it reports a figure. Figures of one line
were taken in one run, interleaved, so that what disturbs the machine disturbs all of them.
``python -m benchmarks.runtime`` makes them all, one line each.
"""
