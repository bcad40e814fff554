"""Sorting the entries of a hash index: a compiled bucket sort.

An entry is moved to the bucket of its hash's top bits. As hashes are uniform, a bucket has one
entry on average; entries of a bucket are sorted by exchanging neighbours. With more than
``2**_NEAR`` buckets, entries are first distributed over ranges of ``2**_NEAR`` buckets, so that a
range stays in the cache while its entries are moved to their buckets.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.index.words import load32, load64, store32, store64

U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]


#: A range has ``2**_NEAR`` buckets, and about as many entries of 12 bytes each.
_NEAR = 15
#: Exchanges per entry after which this sort gives up, as another is faster for many equal hashes.
_PATIENCE = 8


@njit(cache=True, nogil=True)
def sort_entries(hashes: U64, rows: U32, bits: int, starts: U32) -> tuple[U64, U32, bool, bool]:
    """Sort entries by hash, stable among equal hashes.

    Args:
        hashes: hash of each entry.
        rows: row of each entry.
        bits: number of top bits of a hash that are its bucket's number; at least 1.
        starts: ``2**bits + 1`` zeros; set to the first entry of each bucket, and the end.

    Returns:
        Hashes and rows; whether all hashes are distinct; and whether they are sorted (False if many
            equal hashes share a bucket with others).
    """
    if bits <= _NEAR:
        return _settle(hashes, rows, np.full(1, len(hashes), np.uint32), bits, starts)
    hashes, rows, ends = _spread(hashes, rows, bits - _NEAR)
    return _settle(hashes, rows, ends, bits, starts)


@njit(cache=True, nogil=True)
def _settle(
    hashes: U64, rows: U32, ends: U32, bits: int, starts: U32
) -> tuple[U64, U32, bool, bool]:
    """Sort index entries that are already in their ranges of buckets; ``ends``: end of each range.

    A separate function, because Numba frees an array after its last use by name, even if its
    address is still in use; but not a function's arguments.
    """
    n = len(hashes)
    span = (1 << bits) // len(ends)
    sorted_hashes, sorted_rows = np.empty(n, np.uint64), np.empty(n, np.uint32)
    shift = np.uint64(64 - bits)
    from_hashes, from_rows = np.int64(hashes.ctypes.data), np.int64(rows.ctypes.data)
    to_hashes = np.int64(sorted_hashes.ctypes.data)
    to_rows = np.int64(sorted_rows.ctypes.data)
    # The value at index b + 1 is the next free position of bucket b: at first the bucket's
    # beginning, in the end its end, which is the beginning of bucket b + 1.
    starts_at = np.int64(starts.ctypes.data) + 4
    low = np.int64(0)
    for part in range(len(ends)):
        high = np.int64(ends[part])
        for i in range(low, high):
            b = np.int64(load64(from_hashes, i) >> shift)
            store32(starts_at, b, load32(starts_at, b) + np.uint32(1))
        total = np.uint32(low)
        for b in range(part * span, (part + 1) * span):
            count = load32(starts_at, b)
            store32(starts_at, b, total)
            total = np.uint32(total + count)
        for i in range(low, high):
            value = load64(from_hashes, i)
            b = np.int64(value >> shift)
            at = np.int64(load32(starts_at, b))
            store32(starts_at, b, np.uint32(at + 1))
            store64(to_hashes, at, value)
            store32(to_rows, at, load32(from_rows, i))
        low = high

    unique = True
    left = np.int64(_PATIENCE) * n
    for i in range(1, n):
        value, before = load64(to_hashes, i), load64(to_hashes, i - 1)
        if value > before:
            continue
        if value < before:
            row = load32(to_rows, i)
            at = np.int64(i)
            while at > 0 and load64(to_hashes, at - 1) > value:
                store64(to_hashes, at, load64(to_hashes, at - 1))
                store32(to_rows, at, load32(to_rows, at - 1))
                at -= 1
            store64(to_hashes, at, value)
            store32(to_rows, at, row)
            left -= i - at
            if left < 0:
                return sorted_hashes, sorted_rows, False, False
            before = load64(to_hashes, at - 1) if at > 0 else ~value
        unique &= value != before
    return sorted_hashes, sorted_rows, unique, True


@njit(cache=True, nogil=True)
def _spread(hashes: U64, rows: U32, bits: int) -> tuple[U64, U32, U32]:
    """Return hashes and rows distributed over ranges by the top ``bits``, and the ranges' ends."""
    n = len(hashes)
    shift = np.uint64(64 - bits)
    spread_hashes, spread_rows = np.empty(n, np.uint64), np.empty(n, np.uint32)
    ends = np.zeros(1 << bits, np.uint32)
    from_hashes, from_rows = np.int64(hashes.ctypes.data), np.int64(rows.ctypes.data)
    to_hashes = np.int64(spread_hashes.ctypes.data)
    to_rows = np.int64(spread_rows.ctypes.data)
    ends_at = np.int64(ends.ctypes.data)
    for i in range(n):
        b = np.int64(load64(from_hashes, i) >> shift)
        store32(ends_at, b, load32(ends_at, b) + np.uint32(1))
    total = np.uint32(0)
    for b in range(len(ends)):
        count = load32(ends_at, b)
        store32(ends_at, b, total)
        total = np.uint32(total + count)
    for i in range(n):
        value = load64(from_hashes, i)
        b = np.int64(value >> shift)
        at = np.int64(load32(ends_at, b))
        store32(ends_at, b, np.uint32(at + 1))
        store64(to_hashes, at, value)
        store32(to_rows, at, load32(from_rows, i))
    return spread_hashes, spread_rows, ends


def warm() -> None:
    """Compile the kernel that sorts index entries, or load it from the cache."""
    sort_entries(np.zeros(1, np.uint64), np.zeros(1, np.uint32), 1, np.zeros(3, np.uint32))
