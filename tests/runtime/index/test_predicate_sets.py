"""Compare predicate sets as lists and as bits with Python's sets."""

from __future__ import annotations

import numpy as np
import pytest

from anabranch_runtime.columns.arrays import U64
from anabranch_runtime.index.predicate_sets import ALL, PredicateSets, is_member

pytestmark = pytest.mark.fast


def _drawn(rng: np.random.Generator, numbers: int, density: float) -> U64:
    held = rng.random((int(rng.integers(1, 60)), numbers + -numbers % 64)) < density
    held[:, numbers:] = False
    found: U64 = np.packbits(held, axis=1, bitorder="little").view(np.uint64)
    return found


@pytest.mark.parametrize("seed", range(30))
def test_sets_are_found_again(seed: int) -> None:
    """Also after more predicate numbers were added, which are in no earlier set."""
    rng = np.random.default_rng(seed)
    sets, known = PredicateSets(), dict[int, frozenset[int]]()
    numbers = int(rng.choice((1, 64, 65, 3000)))
    for _ in range(4):
        bits = _drawn(rng, numbers, float(rng.choice((0.0, 0.002, 0.3, 1.0))))
        given = [
            frozenset(np.flatnonzero(np.unpackbits(row.view(np.uint8), bitorder="little")).tolist())
            for row in bits
        ]
        found = sets.numbered(bits, 1 << 30)
        for number, members in zip(found.tolist(), given, strict=True):
            assert known.setdefault(number, members) == members
        assert len(set(known.values())) == len(known) == len(sets) - 1
        again = sets.numbered(bits[::-1], 1 << 30)
        assert again.tolist() == found.tolist()[::-1]
        numbers += int(rng.choice((0, 1, 700)))
    view = sets.view
    words = numbers // 64 + 1
    dense = sets.bits(np.array([ALL, *known]), words)
    assert (dense[0] == ~np.uint64(0)).all()
    for (number, members), row in zip(known.items(), dense[1:], strict=True):
        bits_of = np.unpackbits(row.view(np.uint8), bitorder="little")
        assert set(np.flatnonzero(bits_of).tolist()) == members
        for tried in (*sorted(members)[:3], *rng.integers(0, numbers, 5).tolist()):
            assert is_member(*view.addresses, number, tried) == (tried in members)
    assert is_member(*view.addresses, ALL, numbers)


def test_lists_are_shorter_than_bits() -> None:
    bits = np.zeros((100, 200), np.uint64)
    bits[np.arange(100), np.arange(100) + 100] = 1
    sets = PredicateSets()
    sets.numbered(bits, 1 << 30)
    assert sets.size == 16 + 100 * 24


def test_sets_beyond_the_limit_have_all_numbers() -> None:
    bits = (np.arange(100, dtype=np.uint64) + np.uint64(1)).reshape(-1, 1)
    sets = PredicateSets()
    found = sets.numbered(bits, 1000)
    assert 1000 <= sets.size < 1024
    assert np.count_nonzero(found != ALL) == len(sets) - 1 < 100
    # Known sets keep their numbers.
    assert sets.numbered(bits, 1000).tolist() == found.tolist()
