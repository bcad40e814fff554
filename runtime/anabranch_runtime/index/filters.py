"""Bloom filters: whether a hash may be in an index, without reading the index.

A blocked Bloom filter with blocks of 64 bits (Putze, Sanders, Singler: "Cache-, Hash- and
Space-Efficient Bloom Filters", JEA 2009): each hash sets four bits of one word. A probe reads one
word, and has about one false positive in fifty hashes that are not in the index.

The high bits of a hash choose its word, as they choose its bucket in the index. So probes in hash
order read a filter sequentially too. A filter has a tenth of the size of its index.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
import numpy.typing as npt
from numba import njit

U64 = npt.NDArray[np.uint64]


#: Bits of a filter per entry of its index.
BITS = 10
#: Number of entries below which an index has no filter: the index itself fits the CPU's cache.
LEAST = 1 << 10


@njit(cache=True, nogil=True)
def word_of(wanted: int, words: int) -> int:
    """Return the index of the hash ``wanted``'s word in a filter of ``words`` (< 2**32) words."""
    return np.int64(((wanted >> np.uint64(32)) * np.uint64(words)) >> np.uint64(32))


@njit(cache=True, nogil=True)
def bits_of(wanted: int) -> int:
    """Return the bits that the hash ``wanted`` sets in its word of the filter. They depend on all
    bits of the hash, since hashes of one word share the high bits, and hashes of one partition may
    share the low bits."""
    mixed = (wanted * np.uint64(0xD6E8FEB86659FD93)) >> np.uint64(40)
    one, low = np.uint64(1), np.uint64(63)
    found = one << (mixed & low)
    found |= one << ((mixed >> np.uint64(6)) & low)
    found |= one << ((mixed >> np.uint64(12)) & low)
    return found | (one << ((mixed >> np.uint64(18)) & low))


def build_filter(hashes: U64) -> U64:
    """Build the Bloom filter of ``hashes``, as words; empty for fewer than :data:`LEAST` hashes.

    >>> from anabranch_runtime.index.keys import mix
    >>> there = mix(np.arange(5000, dtype=np.uint64))
    >>> len(build_filter(there))
    782
    """
    if len(hashes) < LEAST:
        return np.empty(0, np.uint64)
    found = np.zeros(-(-len(hashes) * BITS // 64), np.uint64)
    _fill(hashes, found)
    return found


@njit(cache=True, nogil=True)
def _fill(hashes: U64, out: U64) -> None:
    for i in range(len(hashes)):
        out[word_of(hashes[i], len(out))] |= bits_of(hashes[i])


def warm() -> None:
    """Compile the kernels of Bloom filters, or load them from Numba's cache."""
    one = np.zeros(1, np.uint64)
    _fill(one, one)
