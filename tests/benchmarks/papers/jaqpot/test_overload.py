"""Tests of the overload benchmark: counting of latencies, and one small run."""

from __future__ import annotations

import argparse
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.papers.jaqpot.live.overload import BENCHMARK, results_after
from benchmarks.papers.jaqpot.live.overload_feed import latencies
from benchmarks.papers.jaqpot.live.overload_workloads import WORKLOADS, live_workload
from benchmarks.papers.jaqpot.targets import all_targets
from benchmarks.session import BatchLog


def _batch(number: int, tuples: int, committed_at: float) -> BatchLog:
    return BatchLog(number, 0, tuples, 0, committed_at, 0.0, 0.0, 0.0, {})


def test_a_rows_latency_ends_with_the_commit_of_its_batch() -> None:
    # 100 rows arrive at second 10 and 100 at second 11; batches read 150 and 50 of them.
    arrivals = [(10.0, 100), (11.0, 200)]
    log = [_batch(0, 150, 12.0), _batch(1, 50, 15.0)]
    found = latencies(log, arrivals, begin=0.0)
    assert set(found) == {2.0, 1.0, 4.0}
    first = [x for x in found if x in (1.0, 2.0)]
    assert abs(first.count(2.0) / len(first) - 100 / 150) < 0.05
    # Only rows that arrive from ``begin`` on count.
    assert set(latencies(log, arrivals, begin=10.5)) == {1.0, 4.0}


def test_results_of_an_overload_are_those_of_batches_that_read_its_rows() -> None:
    log = [replace(_batch(n, 100, 1.0), results=10**n) for n in range(4)]
    # A batch counts if it has any later row; so do all batches after it.
    assert results_after(log, 150) == 10 + 100 + 1000
    assert results_after([*log, replace(_batch(4, 0, 1.0), results=7)], 350) == 1007
    assert results_after(log, 400) == 0


def test_rows_that_nobody_has_read_have_waited_until_then() -> None:
    arrivals = [(10.0, 100), (11.0, 200)]
    found = latencies([_batch(0, 100, 12.0)], arrivals, begin=0.0, until=20.0)
    assert set(found) == {2.0, 9.0}
    assert found.count(9.0) == 100


@pytest.mark.parametrize("name", WORKLOADS)
def test_a_loads_rows_follow_its_rates(name: str, tmp_path: Path) -> None:
    workload = live_workload(name, 2.0, tmp_path)
    load = [(2000.0, 1.0), (4000.0, 0.5)]
    ticks = list(workload.ticks(load))
    assert len(ticks) == 6
    sums = [sum(table.num_rows for table in tick.values()) for tick in ticks]
    if name != "tpch":  # its tables end when the load does, however many rows they have
        assert sums == pytest.approx([500] * 4 + [1000] * 2, abs=3)
    assert sums[-1] == pytest.approx(2 * sums[0], rel=0.05)
    names = {stream: {column for column, _ in some} for stream, some in workload.columns.items()}
    for tick in ticks:
        assert {stream: set(table.column_names) for stream, table in tick.items()} == names


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    BENCHMARK.options(parser)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--parallelism", type=int, default=1)
    small = ["--times", "1.5", "--policies", "wait", "fair", "slo", "--seconds", "6", "--calm", "4"]
    options = parser.parse_args([*small, "--flood", "30000", "--drain", "60"])
    found = BENCHMARK.measure(options, tmp_path)
    assert [one["policy"] for one in found["runs"]] == ["storing", "wait", "fair", "slo"]
    storing, waiting, fair, slo = found["runs"]
    assert waiting["results"] <= waiting["full"]
    assert waiting["results"] == waiting["full"] or not waiting["drained"]
    assert storing["results"] <= storing["full"]
    assert 0 < fair["results"] <= fair["full"]
    assert slo["stale"]["stale"] == 0
    entry = {"part": "overload", "settings": vars(options), **found}
    assert all(len(row) == len(grid.head) for grid in BENCHMARK.tables(entry) for row in grid.rows)
    assert all_targets(None, [entry]).rows
