"""Kernels of a hash table over rows that only grows: buckets with chains.

The top bits of a row's hash are its bucket; ``heads`` has the newest row of each bucket, ``after``
the next older row of the same bucket for each row. -1 ends a chain.
"""
# Compiled functions have Numba's types: callers are type-checked, bodies are not.
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
    """Add the ``valid`` rows from ``first`` to before ``end`` to their chains.

    Args:
        hashes, valid, after: arrays with an entry per row.
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
    """Find pairs of equal hashes, from the probe ``first`` on, until there are ``most``.

    Args:
        probes: hashes of the probes. ``order``: their positions.
        sigma, tau: arrival sequence and event time of rows; compared with ``before``, and with
            ``low`` and ``high`` (per position), unless these are empty.

    Returns:
        Position and row of each pair, and the probe with which to continue.
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
    """Compile the kernels, or load them from the cache."""
    hashes, none = np.zeros(1, np.uint64), np.empty(0, np.int64)
    heads, after = np.full(2, -1, np.int32), np.full(1, -1, np.int32)
    enchain(hashes, np.ones(1, np.bool_), 0, 1, 1, heads, after)
    follow(
        hashes, np.zeros(1, np.int32), 0, 1, hashes, 1, heads, after, none, none, none, none, none
    )
