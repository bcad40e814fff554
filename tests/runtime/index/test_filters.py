"""Tests that a segment's filters (Bloom-like) pass every stored hash, and few others."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_runtime.index.filters import BITS, LEAST, build_filter
from anabranch_runtime.index.keys import mix, partition_of
from tests.support.oracles.invariants import may_have

_WORDS = st.integers(0, 2**64 - 1)


@given(st.lists(_WORDS, min_size=1, max_size=50), st.integers(0, 2**32))
def test_what_is_there_passes(some: list[int], seed: int) -> None:
    """Random hashes, any 64-bit words, and duplicates all pass."""
    more = np.random.default_rng(seed).integers(0, 2**64, LEAST, np.uint64)
    hashes = np.concatenate([np.array(some, np.uint64), more, more[:3]])
    found = build_filter(hashes)
    assert len(found) == -(-len(hashes) * BITS // 64)
    assert bool(may_have(found, hashes).all())


def test_few_hashes_have_no_filter() -> None:
    hashes = mix(np.arange(LEAST - 1, dtype=np.uint64))
    found = build_filter(hashes)
    assert len(found) == 0
    assert bool(may_have(found, mix(np.arange(10**6, 10**6 + 9, dtype=np.uint64))).all())


@pytest.mark.parametrize(
    ("rows", "partitions"),
    [(LEAST, 1), (LEAST, 64), (50_000, 3), (50_000, 64), (1_000_000, 1), (1_000_000, 8)],
)
def test_what_is_not_there_seldom_passes(rows: int, partitions: int) -> None:
    """Hashes of one partition have low bits in common."""
    hashes = mix(np.arange(2 * rows * partitions, dtype=np.uint64))
    own = hashes[partition_of(hashes, partitions) == 0]
    found = build_filter(own[:rows])
    assert may_have(found, own[rows:]).mean() < 0.03
