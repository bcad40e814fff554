"""Compare predicate sets by arrival number with a dictionary."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch_runtime.tags import arrival_sets
from anabranch_runtime.tags.arrival_sets import NONE, ArrivalSets, complete

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("seed", range(8))
def test_sets_are_those_last_added(seed: int) -> None:
    rng, sets, known = np.random.default_rng(seed), ArrivalSets(), dict[int, int]()
    for version in range(12):
        drawn = rng.integers(0, 1 << 12, rng.integers(1, 1500))
        arrivals = drawn.repeat(rng.integers(0, 4, len(drawn))) << 20
        found, first, former = sets.of(arrivals, version)
        needed = arrivals[first]
        assert len(set(needed.tolist())) == len(needed)
        assert former.tolist() == [known.get(a, NONE) for a in needed.tolist()]
        numbers = rng.integers(0, 1 << 31, len(first)).astype(np.int32)
        values = version << 32 | numbers.astype(np.int64)
        values[rng.random(len(values)) < 0.1] = NONE
        sets.add(needed, values)
        wanted = known | dict(
            zip(needed.tolist(), (version << 32 | numbers.astype(np.int64)).tolist(), strict=True)
        )
        complete(found, numbers)
        assert found.tolist() == [wanted[a] & 0xFFFFFFFF for a in arrivals.tolist()]
        known |= dict(zip(needed.tolist(), values.tolist(), strict=True))
        assert len(sets) == len(known)


def test_earlier_arrivals_are_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_sets, "_FIRST", 16)
    monkeypatch.setattr(arrival_sets, "MOST", 1 << 8)
    sets, rng = ArrivalSets(), np.random.default_rng(0)
    for begin in range(0, 5000, 50):
        arrivals = rng.permutation(np.arange(begin, begin + 50)) + (3 << 32)
        sets.add(arrivals, 7 << 32 | arrivals % 1000)
        assert len(sets) <= 1 << 8
        newest = np.arange(max(0, begin - 50), begin + 50) + (3 << 32)
        found, first, _ = sets.of(newest, 7)
        assert not len(first)
        assert found.tolist() == (newest % 1000).tolist()


def test_more_rows_than_are_kept_get_sets(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row that is forgotten before it has a set gets it twice."""
    monkeypatch.setattr(arrival_sets, "_FIRST", 16)
    monkeypatch.setattr(arrival_sets, "MOST", 1 << 5)
    sets, rng = ArrivalSets(), np.random.default_rng(0)
    for _ in range(20):
        arrivals = rng.integers(0, 300, 900)
        found, first, _ = sets.of(arrivals, 1)
        numbers = arrivals[first].astype(np.int32)
        sets.add(arrivals[first], 1 << 32 | arrivals[first])
        complete(found, numbers)
        assert found.tolist() == arrivals.tolist()
        assert len(sets) <= 1 << 5
