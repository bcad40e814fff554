"""Benchmarks: modules that measure and print figures, each run as ``python -m benchmarks.<name>``.

* ``throughput``: five TPC-H joins through the real service and runtime, compared with DuckDB.
* ``planner``: how fast plans are found, how good they are proven to be, and what they save.
* ``runtime``: sharing, numbers of queries, rewires, large state, fixed costs, latency, ingest,
  adaptation.
* ``runtime.report``: writes ``docs/benchmarks-runtime.md`` from the output of the modules in
``runtime``.
* ``report``: writes ``docs/benchmarks.md`` from the lines that ``throughput`` and ``planner`` print
with ``--json``.

Every run of ``throughput`` compares its number of results with an oracle's before it reports a
figure; every plan of ``planner`` is validated. Figures of one line of output were taken in one run,
so their ratios mean more than their absolute values.
"""
