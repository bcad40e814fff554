"""Benchmarks: modules that measure, each run as ``python -m tests.benchmarks.<name>``.

* ``throughput``: five TPC-H joins through the real service and runtime, beside DuckDB.
* ``planner``: what joint planning costs and saves.
* ``report``: ``docs/benchmarks.md`` from the lines that the other two print with ``--json``.

Every run counts its results against an oracle before it reports a figure. Figures of one line
were taken in one run, so their ratios mean more than their absolutes.
"""
