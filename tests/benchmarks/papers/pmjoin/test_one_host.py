"""Compare placements of each partition on one host with PMJoin: equal if joins have many results,
much worse if few.
"""

from __future__ import annotations

import pytest

from benchmarks.papers.pmjoin.one_host import compared
from tests.benchmarks.papers.commands import run


def test_one_host_is_near_the_optimum_where_results_are_many() -> None:
    for row in compared(4, 3, 100.0):
        assert row["exact"] <= row["streamjoinopt"] <= row["one host"] * (1 + 1e-9)
        assert row["one host"] <= 1.05 * row["exact"]


def test_results_that_are_few_travel_cheaply() -> None:
    for row in compared(4, 3, 1.0):
        assert row["exact"] == pytest.approx(row["streamjoinopt"], rel=0.05)
        assert row["one host"] > 2 * row["streamjoinopt"]


def test_the_command_writes_a_line_per_number_of_partitions() -> None:
    ended = run("pmjoin", "one-host", "--streams", "3", "--seeds", "1", "--window", "10")
    assert (ended.exit_code, ended.stderr) == (0, "")
    assert [line.split()[0] for line in ended.stdout.splitlines()] == [
        "partitions",
        "1",
        "16",
        "64",
    ]
