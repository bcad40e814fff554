"""Compare counts and bounds of frequent hashes with exact counting."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import U64
from anabranch_runtime.index.frequent import SLOTS, FrequentHashes, frequent
from anabranch_runtime.index.keys import mix

NONE = np.empty(0, np.uint64)
QUICK = settings(max_examples=60, deadline=None)


def drawn(shape: str, tuples: int, seed: int) -> U64:
    random = np.random.default_rng(seed)
    shapes: dict[str, Callable[[], NDArray[np.int64]]] = {
        "one": lambda: np.full(tuples, 7),
        "few": lambda: random.integers(0, 25, tuples),
        "many": lambda: random.integers(0, 200, tuples),
        "zipf": lambda: np.minimum(random.zipf(1.3, tuples), 1 << 40),
        "different": lambda: np.arange(tuples) + (seed << 20),
    }
    return mix(shapes[shape]().astype(np.uint64))


def check(found: FrequentHashes, hashes: U64, known: U64, least: int, most: int) -> None:
    counted = Counter(hashes.tolist())
    assert found.counts.tolist() == [counted[h] for h in known.tolist()]
    fresh = found.fresh.tolist()
    assert found.fresh_counts.tolist() == [counted[h] for h in fresh]
    assert found.fresh_counts.tolist() == sorted(found.fresh_counts.tolist(), reverse=True)
    assert hashes[found.positions].tolist() == fresh
    assert len(fresh) <= most
    assert all(counted[h] >= least for h in fresh)
    others = counted.keys() - set(fresh) - set(known.tolist())
    assert max((counted[h] for h in others), default=0) <= found.rest


@QUICK
@given(
    st.sampled_from(["one", "few", "many", "zipf", "different"]),
    st.integers(0, 5_000),
    st.integers(0, 1 << 30),
    st.integers(0, 64),
    st.integers(1, 50),
    st.sampled_from([1, 8, 64]),
)
def test_counts_are_exact_and_nothing_else_is_above_the_bound(
    shape: str, tuples: int, seed: int, known_ones: int, least: int, most: int
) -> None:
    hashes = drawn(shape, tuples, seed)
    known = np.unique(np.concatenate([hashes[: known_ones // 2], drawn("few", 30, 1)]))
    known = known[:known_ones]
    check(frequent(hashes, known, least, most), hashes, known, least, most)


def test_hashes_that_share_a_slot_are_found_one_after_the_other() -> None:
    alike = np.arange(1, 4, dtype=np.uint64) * np.uint64(SLOTS) + np.uint64(5)
    hashes = np.random.default_rng(3).permutation(np.repeat(alike, [400, 300, 200]))
    found = frequent(hashes, NONE, 10, 8)
    assert found.fresh.tolist() == alike.tolist()
    assert (found.fresh_counts.tolist(), found.rest) == ([400, 300, 200], 0)


@pytest.mark.parametrize("shift", [0, 32, 63])
def test_known_hashes_may_share_a_place(shift: int) -> None:
    known = (np.arange(1, 65, dtype=np.uint64) << np.uint64(shift)) | np.arange(64, dtype=np.uint64)
    known = np.unique(known)
    hashes = np.repeat(known, np.arange(len(known)))
    found = frequent(hashes, known, 1, 8)
    assert found.counts.tolist() == list(range(len(known)))
    assert (len(found.fresh), found.rest) == (0, 0)


def test_a_hash_of_zero_counts_like_any_other() -> None:
    zero = np.zeros(3, np.uint64)
    assert frequent(zero, NONE, 2, 8).fresh_counts.tolist() == [3]
    assert frequent(zero, zero[:1], 2, 8).counts.tolist() == [3]


def test_the_bound_is_close_where_nothing_is_frequent() -> None:
    hashes = drawn("different", 50_000, 2)
    found = frequent(hashes, NONE, 100, 64)
    assert len(found.fresh) == 0
    assert found.rest < 0.001 * len(hashes)


def test_values_of_a_fifth_of_a_percent_are_found_at_once() -> None:
    random = np.random.default_rng(4)
    heavy = np.repeat(np.arange(40), 120)
    values = random.permutation(np.concatenate([heavy, np.arange(1_000, 46_200)]))
    found = frequent(mix(values.astype(np.uint64)), NONE, 100, 64)
    assert set(found.fresh.tolist()) >= set(mix(np.arange(40, dtype=np.uint64)).tolist())
