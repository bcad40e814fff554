"""A hash table over rows that only grows: buckets with chains, as kernels.

A row's hash gives its bucket by its top bits; ``heads`` has the newest row of each bucket,
``after`` the next older one of each row. -1 ends a chain.
"""
# Compiled functions have Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import U64, Bools, Ints

I32 = NDArray[np.int32]


@njit(cache=True, nogil=True)
def enchain(
    hashes: U64, valid: Bools, first: int, end: int, bits: int, heads: I32, after: I32
) -> None:
    """Put the rows ``first`` to before ``end`` into their chains, but for those not ``valid``.

    Args:
        hashes, valid, after: per row.
        bits: at least 1; ``heads`` has ``2**bits`` entries.
    """
    shift = np.uint64(64 - bits)
    for row in range(first, end):
        if valid[row]:
            bucket = np.int64(hashes[row] >> shift)
            after[row] = heads[bucket]
            heads[bucket] = row


@njit(cache=True, nogil=True)
def follow(
    probes: U64,
    order: I32,
    first: int,
    most: int,
    hashes: U64,
    bits: int,
    heads: I32,
    after: I32,
    sigma: Ints,
    before: Ints,
    tau: Ints,
    low: Ints,
    high: Ints,
) -> tuple[I32, I32, int]:
    """Pairs of equal hashes, from the probe ``first`` on, until there are ``most``.

    Args:
        probes: hashes; ``order``: their positions.
        sigma, tau: of rows, compared unless ``before``, or ``low`` and ``high`` (per position), are
            empty.

    Returns:
        position and row of each pair, and the probe to go on with.
    """
    room = min(most, 4 * (len(probes) - first)) + 64
    positions, rows = np.empty(room, np.int32), np.empty(room, np.int32)
    shift = np.uint64(64 - bits)
    used = 0
    i = first
    while i < len(probes) and used < most:
        wanted = probes[i]
        position = order[i]
        row = np.int64(heads[np.int64(wanted >> shift)])
        while row >= 0:
            if hashes[row] == wanted:
                fits = True
                if len(before) != 0:
                    fits = sigma[row] < before[position]
                if len(low) != 0 and fits:
                    fits = low[position] <= tau[row] and tau[row] <= high[position]
                if fits:
                    if used == room:
                        room *= 2
                        wider = np.empty(room, np.int32)
                        wider[:used] = positions
                        positions = wider
                        wider = np.empty(room, np.int32)
                        wider[:used] = rows
                        rows = wider
                    positions[used] = position
                    rows[used] = row
                    used += 1
            row = np.int64(after[row])
        i += 1
    return positions[:used].copy(), rows[:used].copy(), i


def warm() -> None:
    """Compile, or load from the cache."""
    hashes, none = np.zeros(1, np.uint64), np.empty(0, np.int64)
    heads, after = np.full(2, -1, np.int32), np.full(1, -1, np.int32)
    enchain(hashes, np.ones(1, np.bool_), 0, 1, 1, heads, after)
    follow(
        hashes, np.zeros(1, np.int32), 0, 1, hashes, 1, heads, after, none, none, none, none, none
    )
