"""The overload benchmark: how latencies are counted, and one small run of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from benchmarks.jaqpot.overload import BENCHMARK
from benchmarks.jaqpot.overload_feed import latencies
from benchmarks.session import BatchLog

if TYPE_CHECKING:
    from pathlib import Path


def _batch(number: int, tuples: int, committed_at: float) -> BatchLog:
    return BatchLog(number, 0, tuples, 0, committed_at, 0.0, 0.0, 0.0, {})


def test_a_rows_latency_ends_with_the_commit_of_its_batch() -> None:
    # A hundred rows arrive at second 10 and a hundred at 11; they are read as 150 and 50.
    arrivals = [(10.0, 100), (11.0, 200)]
    log = [_batch(0, 150, 12.0), _batch(1, 50, 15.0)]
    found = latencies(log, arrivals, begin=0.0)
    assert set(found) == {2.0, 1.0, 4.0}
    first = [x for x in found if x in (1.0, 2.0)]
    assert abs(first.count(2.0) / len(first) - 100 / 150) < 0.05
    # Only what arrives from then on counts.
    assert set(latencies(log, arrivals, begin=10.5)) == {1.0, 4.0}


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    BENCHMARK.options(parser)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--parallelism", type=int, default=1)
    small = ["--times", "1.5", "--policies", "wait", "fair", "--seconds", "6", "--calm", "2"]
    found = BENCHMARK.measure(parser.parse_args([*small, "--flood", "40000"]), tmp_path)
    assert [one["policy"] for one in found["runs"]] == ["wait", "fair"]
    waiting, fair = found["runs"]
    assert waiting["results"] == waiting["full"] > 0
    assert 0 < fair["results"] <= fair["full"]
    assert BENCHMARK.tables(found)
