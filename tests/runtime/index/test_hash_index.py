"""Compare the hash index with a dictionary of lists, and sketches with sets."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.index.hash_index import (
    HashIndex,
    build_index,
    distinct_sketch,
    estimate_distinct,
    merge_indexes,
    merge_sketches,
)
from anabranch_runtime.index.keys import KeyVector, mix
from anabranch_runtime.index.matching import described, in_order, match
from tests.support.oracles.invariants import check_index

_TOP = (1 << 64) - 1
#: Random hashes, and ones that share buckets or low bits.
_HASHES = st.one_of(
    st.integers(0, 7),
    st.integers(_TOP - 7, _TOP),
    st.integers(0, 40).map(lambda v: v << 58 | v),
    st.integers(0, _TOP),
)


def _keys(hashes: list[int], valid: list[bool] | None) -> KeyVector:
    return KeyVector(
        np.array(hashes, dtype=np.uint64),
        None if valid is None else np.array(valid, dtype=np.bool_),
        exact=True,
    )


def _expected(
    hashes: list[int], valid: list[bool] | None, probes: list[int]
) -> list[tuple[int, int]]:
    rows: dict[int, list[int]] = {}
    for row, value in enumerate(hashes):
        if valid is None or valid[row]:
            rows.setdefault(value, []).append(row)
    return [(i, row) for i, value in enumerate(probes) for row in rows.get(value, [])]


def _found(index: HashIndex, probes: list[int]) -> list[tuple[int, int]]:
    found = match(in_order(np.array(probes, dtype=np.uint64)), described([index]))
    return sorted(zip(found.positions.tolist(), found.rows.tolist(), strict=True))


@given(st.data())
def test_probe_is_a_dictionary_lookup(data: st.DataObject) -> None:
    hashes = data.draw(st.lists(_HASHES, max_size=60))
    flags = st.lists(st.booleans(), min_size=len(hashes), max_size=len(hashes))
    valid = data.draw(st.none() | flags)
    known = st.sampled_from(hashes) if hashes else _HASHES
    probes = data.draw(st.lists(known | _HASHES, max_size=40))
    index = build_index(_keys(hashes, valid))
    check_index(index)
    assert _found(index, probes) == _expected(hashes, valid, probes)


def _random(n: int, distinct: int, seed: int) -> npt.NDArray[np.uint64]:
    draws = np.random.default_rng(seed).integers(0, distinct, n)
    return mix(draws.astype(np.uint64))


@pytest.mark.parametrize("distinct", [1, 10, 5_000, 1 << 40])
def test_large_indexes(distinct: int) -> None:
    hashes = _random(20_000, distinct, 1)
    index = build_index(KeyVector(hashes, None, exact=True))
    check_index(index)
    probes = np.concatenate([_random(50, distinct, 2), _random(50, 1 << 50, 3), hashes[:50]])
    wanted = probes.tolist()
    assert _found(index, wanted) == _expected(hashes.tolist(), None, wanted)


def test_a_heavy_key_does_not_slow_its_neighbour_down() -> None:
    # Both hashes in one bucket, the second behind 50,000 rows: reached by a binary search.
    hashes = np.array([8] * 50_000 + [9], dtype=np.uint64)
    index = build_index(KeyVector(hashes, None, exact=True))
    assert _found(index, [9, 10, 7]) == [(0, 50_000)]


def test_hashes_that_differ_in_low_bits_only_are_still_sorted() -> None:
    hashes = np.array([1 << 60 | low for low in (3, 1, 2, 0, 1)], dtype=np.uint64)
    index = build_index(KeyVector(hashes, None, exact=True))
    check_index(index)
    assert index.rows.tolist() == [3, 1, 4, 2, 0]


def _entries(index: HashIndex) -> tuple[list[int], list[int]]:
    return index.hashes.tolist(), index.rows.tolist()


def _stable(hashes: npt.NDArray[np.uint64]) -> tuple[list[int], list[int]]:
    order = np.argsort(hashes, kind="stable")
    return hashes[order].tolist(), order.tolist()


@pytest.mark.parametrize("distinct", [3, 20_000, 1 << 40])
def test_indexes_of_many_ranges(distinct: int) -> None:
    hashes = _random(150_000, distinct, 4)
    index = build_index(KeyVector(hashes, None, exact=True))
    check_index(index)
    assert _entries(index) == _stable(hashes)


def test_an_index_of_millions() -> None:
    # Large enough that freed memory is returned to the system, so that using it would crash.
    index = build_index(KeyVector(_random(5_000_000, 1 << 40, 5), None, exact=True))
    check_index(index)


@pytest.mark.parametrize("rows", [100, 60_000])
def test_heavy_keys_of_one_bucket_are_sorted_in_the_end(rows: int) -> None:
    hashes = np.tile(np.array([5 << 8, 4 << 8, 6 << 8, 1], dtype=np.uint64), rows)
    index = build_index(KeyVector(hashes, None, exact=True))
    check_index(index)
    assert _entries(index) == _stable(hashes)


@given(st.data())
def test_merged_indexes_are_the_index_of_all_rows(data: st.DataObject) -> None:
    lists = data.draw(st.lists(st.lists(_HASHES, max_size=30), min_size=1, max_size=5))
    flags = [data.draw(st.lists(st.booleans(), min_size=len(x), max_size=len(x))) for x in lists]
    parts = [
        (build_index(_keys(hashes, valid)), len(hashes))
        for hashes, valid in zip(lists, flags, strict=True)
    ]
    merged = merge_indexes(parts)
    check_index(merged)
    whole = build_index(_keys([h for x in lists for h in x], [v for x in flags for v in x]))
    assert _entries(merged) == _entries(whole)


@given(st.lists(_HASHES, max_size=80), st.lists(_HASHES, max_size=80), st.integers(1, 12))
def test_sketches_are_the_least_of_the_set(left: list[int], right: list[int], k: int) -> None:
    a, b = (distinct_sketch(np.array(x, dtype=np.uint64), k) for x in (left, right))
    assert a.tolist() == sorted(set(left))[:k]
    assert merge_sketches([a, b], k).tolist() == sorted(set(left) | set(right))[:k]
    if len(set(left)) < k:
        assert estimate_distinct(a, k) == len(set(left))


def test_sketches_skip_null_keys() -> None:
    assert distinct_sketch(_keys([5, 1, 9], [True, False, True])).tolist() == [5, 9]
    assert merge_sketches([]).tolist() == []


@pytest.mark.parametrize("distinct", [1_000, 30_000])
def test_estimates_are_close(distinct: int) -> None:
    hashes = _random(200_000, distinct, 4)
    true = len(np.unique(hashes))
    halves = [distinct_sketch(hashes[:90_000]), distinct_sketch(hashes[90_000:])]
    merged = merge_sketches(halves)
    assert merged.tolist() == distinct_sketch(hashes).tolist()
    # Four standard errors of 1 / sqrt(k - 2).
    assert estimate_distinct(merged) == pytest.approx(true, rel=0.25)
