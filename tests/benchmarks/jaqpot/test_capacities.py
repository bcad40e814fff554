"""The benchmark of stated capacities: one small run of it."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

import pytest

from benchmarks.jaqpot.capacities import BENCHMARK

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_a_small_run(tmp_path: Path) -> None:
    parser = argparse.ArgumentParser()
    BENCHMARK.options(parser)
    parser.add_argument("--tasks", type=int, default=2)
    parser.add_argument("--parallelism", type=int, default=1)
    small = ["--shares", "0.3", "--allocations", "fair", "--seconds", "14", "--rate", "4000"]
    found = BENCHMARK.measure(parser.parse_args(small), tmp_path)
    (one,) = found["runs"]
    assert (one["allocation"], one["share"]) == ("fair", 0.3)
    assert 0 < one["kept"] < 0.9
    assert one["probing"] > 0
    assert BENCHMARK.tables(found)
