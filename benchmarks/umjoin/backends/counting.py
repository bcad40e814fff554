"""Number of rows that each probe will find, counted before the pairs are made.

Pairs of a probe and a row take memory: every probe with a key that half of a table has makes half
as many pairs as the table has rows. So probes are cut into runs whose pairs fit into a limit.

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
# Compiled functions have Numba's types: callers are type-checked, bodies are not.
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
    """Return the number of entries with each probe's hash in
    ``indexes`` (``matching.described``).
    """
    out = np.zeros(len(hashes), np.int64)
    _count(hashes, indexes, out)
    return out


def runs(counts: Ints, most: int) -> list[tuple[int, int]]:
    """Return runs (first, end) of probes whose counts sum up to ``most``, or with a
    single probe.
    """
    ends = np.cumsum(counts)
    found, first, passed = [], 0, 0
    while first < len(counts):
        end = max(first + 1, int(np.searchsorted(ends, passed + most, side="right")))
        found.append((first, end))
        first, passed = end, int(ends[end - 1])
    return found


@njit(cache=True, nogil=True)
def _bound(stored: int, low: int, high: int, wanted: int, above: bool) -> int:
    """Return the first entry in a range that is at least ``wanted`` (``above``: greater)."""
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
    """Compile the kernels, or load them from the cache."""
    pairs_of(np.zeros(1, np.uint64), np.zeros((0, 7), np.int64))
