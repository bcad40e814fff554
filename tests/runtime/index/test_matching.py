"""Compare matching against many indexes under constraints with a loop over all pairs."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.index import filters
from anabranch_runtime.index.gather import address
from anabranch_runtime.index.hash_index import build_index
from anabranch_runtime.index.keys import KeyVector, mix
from anabranch_runtime.index.matching import Constraint, described, in_order, mark_present, match
from tests.support.oracles.invariants import may_have

_KEYS = st.lists(st.integers(0, 6), max_size=25)


def _hashes(keys: list[int]) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    return mix(np.array(keys, np.uint64))


@given(st.data())
def test_pairs_are_those_of_a_nested_loop(data: st.DataObject) -> None:
    stored = data.draw(st.lists(_KEYS, min_size=1, max_size=4))
    probing = data.draw(_KEYS)
    alive = data.draw(st.none() | st.sets(st.integers(0, max(len(probing) - 1, 0))))
    if not probing:
        alive = None
    chosen = list(range(len(probing))) if alive is None else sorted(alive)
    values = [np.array([7 * r % 11 for r in range(len(keys))], np.int64) for keys in stored]
    limits = st.lists(st.integers(-1, 11), min_size=len(probing), max_size=len(probing))
    bounds = [(data.draw(limits), data.draw(limits)) for _ in range(data.draw(st.integers(0, 3)))]
    asked = [[data.draw(st.booleans()) for _ in stored] for _ in bounds]
    counting = data.draw(st.integers(0, len(bounds)))

    with patch.object(filters, "LEAST", data.draw(st.sampled_from([1, filters.LEAST]))):
        indexes = [build_index(KeyVector(_hashes(keys), None, exact=True)) for keys in stored]
    constraints = [
        Constraint(
            np.array(
                [address(v) if a else 0 for v, a in zip(values, which, strict=True)], np.int64
            ),
            np.array(low, np.int64),
            np.array(high, np.int64),
        )
        for (low, high), which in zip(bounds, asked, strict=True)
    ]
    positions = None if alive is None else np.array(chosen, np.int64)
    marks = np.zeros(len(probing), np.uint8)
    probes = in_order(_hashes(probing), positions)
    found = match(probes, described(indexes), constraints, counting, marks=marks)

    pairs: list[tuple[int, int, int]] = []
    counted = [0] * len(stored)
    marked = set()
    for s, keys in enumerate(stored):
        for p in chosen:
            for row, key in enumerate(keys):
                if key != probing[p]:
                    continue
                held = [
                    not asked[c][s] or low[p] <= values[s][row] <= high[p]
                    for c, (low, high) in enumerate(bounds)
                ]
                counted[s] += all(held[:counting])
                marked |= {p} if all(held[:counting]) else set()
                if all(held):
                    pairs.append((s, p, row))
    which = np.repeat(np.arange(len(stored)), found.found)
    got = zip(which.tolist(), found.positions.tolist(), found.rows.tolist(), strict=True)
    assert sorted(got) == sorted(pairs)
    assert found.counted.tolist() == counted
    assert set(np.flatnonzero(marks).tolist()) == marked


def test_many_partners_of_few_probes() -> None:
    """More pairs than space was reserved for."""
    index = build_index(KeyVector(_hashes([3] * 5_000), None, exact=True))
    found = match(in_order(_hashes([3, 4, 3])), described([index]))
    assert len(found.positions) == 10_000
    assert sorted(set(found.positions.tolist())) == [0, 2]
    assert np.array_equal(np.sort(found.rows), np.repeat(np.arange(5_000), 2))


def test_an_index_without_entries_is_not_looked_into() -> None:
    some = build_index(KeyVector(_hashes([1, 1]), None, exact=True))
    none = build_index(KeyVector(_hashes([1]), np.zeros(1, np.bool_), exact=True))
    found = match(in_order(_hashes([1, 2])), described([none, some, none]))
    assert (len(none), found.held, len(found.rows)) == (0, 4, 2)


@pytest.mark.parametrize("hits", [0.0, 0.01, 0.5, 0.74, 0.76, 1.0])
@pytest.mark.parametrize("probing", [1, 127, 128, 129, 5_000])
def test_a_filter_changes_no_match(hits: float, probing: int) -> None:
    """Whether the segment's filter is used (few hits) or skipped (many)."""
    draw = np.random.default_rng(int(1000 * hits) + probing)
    stored = draw.integers(0, 20_000, 10_000)
    present = draw.random(probing) < hits
    asked = np.where(present, draw.choice(stored, probing), draw.integers(20_000, 10**9, probing))
    probes = in_order(mix(asked.astype(np.uint64)))
    keys = KeyVector(mix(stored.astype(np.uint64)), None, exact=True)
    filtered = build_index(keys)
    with patch.object(filters, "LEAST", 1 << 30):
        plain = build_index(keys)
    assert (len(filtered.filter), len(plain.filter)) == (1563, 0)
    for indexes in ([filtered], [plain, filtered], [filtered, plain, filtered]):
        found = match(probes, described(indexes))
        other = match(probes, described([plain] * len(indexes)))
        assert found.found.tolist() == other.found.tolist()
        assert found.counted.tolist() == other.counted.tolist()
        screens = sum(index is filtered for index in indexes)
        held = int((~may_have(filtered.filter, probes.hashes)).sum())
        # The filter must reject at least a quarter of the first probes.
        tried = may_have(filtered.filter, probes.hashes[:: probing // 128 + 1])
        assert found.held == (screens * held if 4 * tried.sum() <= 3 * len(tried) else 0)
        assert other.held == 0
        pairs = np.stack([found.positions, found.rows])
        others = np.stack([other.positions, other.rows])
        for ours, theirs in zip(
            np.split(pairs, np.cumsum(found.found)[:-1], axis=1),
            np.split(others, np.cumsum(other.found)[:-1], axis=1),
            strict=True,
        ):
            assert np.array_equal(ours[:, np.lexsort(ours)], theirs[:, np.lexsort(theirs)])


@given(st.data())
def test_presence_is_that_of_a_key_in_any_index(data: st.DataObject) -> None:
    stored = data.draw(st.lists(_KEYS, max_size=4))
    probing = data.draw(_KEYS)
    known = data.draw(st.lists(st.booleans(), min_size=len(probing), max_size=len(probing)))
    with patch.object(filters, "LEAST", data.draw(st.sampled_from([1, filters.LEAST]))):
        indexes = [build_index(KeyVector(_hashes(keys), None, exact=True)) for keys in stored]
    marks = np.array(known, np.uint8)
    mark_present(in_order(_hashes(probing)), described(indexes), marks)
    there = {key for keys in stored for key in keys}
    assert marks.tolist() == [k or key in there for k, key in zip(known, probing, strict=True)]


def test_presence_in_a_large_index_with_a_frequent_key() -> None:
    keys = [3] * 40_000 + list(range(10_000, 60_000))
    index = build_index(KeyVector(_hashes(keys), None, exact=True))
    probing = [3, 4, 9_999, 10_000, 59_999, 60_000, *range(60_000, 90_000)]
    marks = np.zeros(len(probing), np.uint8)
    mark_present(in_order(_hashes(probing)), described([index]), marks)
    assert np.flatnonzero(marks).tolist() == [0, 3, 4]
