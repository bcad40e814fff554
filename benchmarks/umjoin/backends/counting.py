"""Number of rows that each probe will find, counted before they are found.

Pairs take memory: a key that half of a table shares gives as many pairs for every probe that has
it. So probes are cut into runs whose pairs have room.

>>> from anabranch_runtime.index.hash_index import build_index
>>> from anabranch_runtime.index.keys import key_vector
>>> from anabranch_runtime.index.matching import described, in_order
>>> import pyarrow as pa
>>> stored = build_index(key_vector([pa.array([5, 6, 5, None])], ["bigint"]))
>>> probes = in_order(key_vector([pa.array([5, 7])], ["bigint"]).hashes)
>>> sorted(pairs_of(probes.hashes, described([stored])).tolist())
[0, 2]
>>> runs(np.array([3, 0, 3, 9, 1]), 5)
[(0, 2), (2, 3), (3, 4), (4, 5)]
"""
# Compiled functions have Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.index.filters import bits_of, word_of
from anabranch_runtime.index.words import load32, load64

Ints = NDArray[np.int64]
U64 = NDArray[np.uint64]


def pairs_of(hashes: U64, indexes: Ints) -> Ints:
    """Per probe the entries with its hash, over all ``indexes`` (see ``matching.described``)."""
    out = np.zeros(len(hashes), np.int64)
    _count(hashes, indexes, out)
    return out


def runs(counts: Ints, most: int) -> list[tuple[int, int]]:
    """Runs (first, end) of neighbours whose counts sum up to ``most`` or which are one alone."""
    ends = np.cumsum(counts)
    found, first, passed = [], 0, 0
    while first < len(counts):
        end = max(first + 1, int(np.searchsorted(ends, passed + most, side="right")))
        found.append((first, end))
        first, passed = end, int(ends[end - 1])
    return found


@njit(cache=True, nogil=True)
def _bound(stored: int, low: int, high: int, wanted: int, above: bool) -> int:
    """The first entry of ``low`` to ``high`` that is not below ``wanted``; or that is above."""
    while low < high:
        middle = (low + high) >> 1
        value = load64(stored, middle)
        if value < wanted or (above and value == wanted):
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def _count(hashes: U64, indexes: Ints, out: Ints) -> None:
    for s in range(len(indexes)):
        stored, starts, shift = indexes[s, 0], indexes[s, 2], np.uint64(indexes[s, 3])
        screen, words = indexes[s, 5], indexes[s, 6]
        for i in range(len(hashes)):
            wanted = hashes[i]
            if screen != 0:
                bits = bits_of(wanted)
                if load64(screen, word_of(wanted, words)) & bits != bits:
                    continue
            bucket = np.int64(wanted >> shift)
            low, high = np.int64(load32(starts, bucket)), np.int64(load32(starts, bucket + 1))
            low = _bound(stored, low, high, wanted, False)
            out[i] += _bound(stored, low, high, wanted, True) - low


def warm() -> None:
    """Compile, or load from the cache."""
    pairs_of(np.zeros(1, np.uint64), np.zeros((0, 7), np.int64))
