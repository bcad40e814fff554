"""Tests of the addition and subtraction of measurements."""

from __future__ import annotations

from dataclasses import asdict, astuple, fields
from random import Random

import pytest

from anabranch_contract.codec import dumps, loads
from anabranch_contract.protocol.measurements import (
    Counts,
    EdgeStatistics,
    FrequentValues,
    JoinSample,
    Snapshot,
    StreamStatistics,
    Writes,
)
from anabranch_contract.queries.mirs import MirId


def edge(rng: Random) -> EdgeStatistics:
    return EdgeStatistics(**{f.name: rng.randrange(1000) for f in fields(EdgeStatistics)})


@pytest.mark.parametrize("seed", range(20))
def test_every_count_of_an_edge_is_added_and_taken_away(seed: int) -> None:
    rng = Random(seed)
    one, other = edge(rng), edge(rng)
    both = one + other
    assert astuple(both) == tuple(a + b for a, b in zip(astuple(one), astuple(other), strict=True))
    assert both - one == other
    assert one - EdgeStatistics() == one


def test_inserts_add_up() -> None:
    found = sum([Writes(1, 10, 0.5), Writes(2, 5, 0.25)], Writes())
    assert asdict(found) == {"writes": 3, "rows": 15, "seconds": 0.75}


def test_counts_read_what_rates_need_of_a_snapshot() -> None:
    sample = JoinSample(MirId("R,S"), (), (), 1.0, 1.0, 1.0)
    whole = Snapshot(
        3, 4, 16, arrivals={"R[x]": 7}, streams={"R": {"input": 9, "late": 1, "invalid": 0}},
        steps=(sample,),
    )  # fmt: skip
    read = Counts.loads(dumps(whole))
    assert (read.batches, read.total_batches) == (4, 16)
    assert read.relations == {"R[x]": 7, "R": 8}


def test_a_delay_is_the_end_of_its_class() -> None:
    found = StreamStatistics(10, delays=(5, 0, 0, 5))
    assert [found.delay(share) for share in (0.5, 0.6, 1.0)] == [0, 7, 7]
    assert StreamStatistics(10).delay(0.5) is None


def test_frequent_values_are_written_and_read() -> None:
    found = FrequentValues((1, (1 << 64) - 1), ("a", ""), (0.5, 0.25), (0.4, 0.3), 0.01)
    whole = Snapshot(0, 1, 1, values={"R": {"a": found}})
    assert loads(dumps(whole), Snapshot) == whole
