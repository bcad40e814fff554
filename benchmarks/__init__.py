"""Benchmarks: modules that measure, each run as ``python -m benchmarks.<name>``.

* ``throughput``: five TPC-H joins through the real service and runtime, beside DuckDB.
* ``planner``: how fast plans are found, how good they are proven to be, and what they save.
* ``runtime``: sharing, numbers of queries, rewires, large state, fixed costs, latency, ingest,
  adaptation.
* ``runtime.report``: ``docs/benchmarks-runtime.md`` from the lines of those.
* ``report``: ``docs/benchmarks.md`` from the lines that the other two print with ``--json``.

Every run of ``throughput`` counts its results against an oracle before it reports a figure; every
plan of ``planner`` is validated. Figures of one line were taken in one run, so their ratios mean
more than their absolutes.
"""
