"""Matching of few probes: from the key column of a partial result to its matches in one call.

:func:`kernels.match` needs sorted hashes and bounds as columns, which a dozen calls prepare. For
few probes this preparation takes most of the time. If the key is one integer without NULLs, the
kernel of this module reads each key from the column, hashes it and looks it up at once.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import I32, Ints
from anabranch_runtime.index.filters import bits_of, word_of
from anabranch_runtime.index.kernels import ENTRIES, FILTER, HASHES, ROWS, SHIFT, STARTS, WORDS
from anabranch_runtime.index.words import load8, load16, load32, load64

#: Maximum entries of a bucket for a linear search; larger buckets are bisected first.
_STEPS = 8


@njit(cache=True, nogil=True)
def hash_of(table: int, row: int, width: int) -> int:
    """The hash of an integer of ``width`` bits, equal to that of ``keys.key_vector``."""
    if width == 64:
        h = load64(table, row)
    elif width == 32:
        h = np.uint64(np.int64(np.int32(load32(table, row))))
    elif width == 16:
        h = np.uint64(np.int64(np.int16(load16(table, row))))
    else:
        h = np.uint64(np.int64(np.int8(load8(table, row))))
    h = h + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@njit(cache=True, nogil=True)
def entries_from(wanted: int, stored: int, buckets: int, shift: int) -> tuple[int, int]:
    """Position of the first entry with the hash ``wanted`` (or a greater one) in an index, and the
    end of the hash's bucket. ``stored``, ``buckets``: addresses of the index's hashes and buckets.
    """
    bucket = np.int64(wanted >> shift)
    at, stop = np.int64(load32(buckets, bucket)), np.int64(load32(buckets, bucket + 1))
    end = stop
    while end - at > _STEPS:
        middle = (at + end) >> 1
        if load64(stored, middle) < wanted:
            at = middle + 1
        else:
            end = middle
    while at < stop and load64(stored, at) < wanted:
        at += 1
    return at, stop


@njit(cache=True, nogil=True)
def match_few(
    keys: Ints,
    which: Any,
    rows: I32,
    width: int,
    sigmas: Ints,
    starts: I32,
    less: int,
    lows: Ints,
    highs: Ints,
    segments: Ints,
    stored_sigmas: Ints,
    stored_taus: Ints,
    least: Ints,
    greatest: Ints,
    sizes: Ints,
    whole: NDArray[np.bool_],
    most: int,
    marks: NDArray[np.uint8],
) -> tuple[I32, I32, Ints, Ints]:
    """Every pair (position, stored row) with equal keys that satisfies arrival order and bounds.

    Args:
        keys: per table of the partial result, the address of its key column, whose values have
            ``width`` bits; the key of position ``i`` is row ``rows[i]`` of table ``which[i]``.
        sigmas: one entry, the address of the starting tuples' sigmas; the sigma of position ``i``
            is row ``starts[i]``. A match of this batch has at most this sigma minus ``less``.
        lows, highs: least and greatest event time of a match, per position; empty: no bounds.
        segments: see :func:`kernels.match`.
        stored_sigmas: per segment, the address of its sigmas; 0 if all rows are of earlier batches.
        stored_taus, least, greatest: per segment, the address of its event times, and their range;
            not read without bounds.
        sizes: rows per segment. ``whole``: mask of the segments with separate counts.
        most: maximum number of pairs.
        marks: set to 1 at each position with a match that arrived early enough.

    Returns:
        Position and row of each pair, in the order of the segments; pairs per segment; and an array
        of counts: segments whose event times overlap the bounds; rows of such ``whole`` segments;
        look-ups that filters or empty indexes saved; matches that arrived early enough; such
        matches in ``whole`` segments; 1 if there were too many pairs.
    """
    n = len(rows)
    hashes = np.empty(n, np.uint64)
    before = np.empty(n, np.int64)
    for i in range(n):
        table = keys[which[i]] if len(keys) > 1 else keys[0]
        hashes[i] = hash_of(table, np.int64(rows[i]), width)
        before[i] = np.int64(load64(sigmas[0], np.int64(starts[i]))) - less
    bounded = len(lows) > 0
    low, high = np.int64(0), np.int64(0)
    if bounded:
        low, high = lows.min(), highs.max()
    room = max(n, 64)
    positions, found_rows = np.empty(room, np.int32), np.empty(room, np.int32)
    found = np.zeros(len(segments), np.int64)
    counts = np.zeros(6, np.int64)
    used = 0
    for s in range(len(segments)):
        if bounded and (greatest[s] < low or least[s] > high):
            continue
        counts[0] += 1
        if whole[s]:
            counts[1] += sizes[s]
        last = segments[s, ENTRIES] - 1
        if last < 0:
            counts[2] += n
            continue
        stored, numbers, buckets = segments[s, HASHES], segments[s, ROWS], segments[s, STARTS]
        shift, screen = np.uint64(segments[s, SHIFT]), segments[s, FILTER]
        for i in range(n):
            wanted = hashes[i]
            if screen != 0:
                bits = bits_of(wanted)
                if load64(screen, word_of(wanted, segments[s, WORDS])) & bits != bits:
                    counts[2] += 1
                    continue
            at, stop = entries_from(wanted, stored, buckets, shift)
            while at < stop and load64(stored, at) == wanted:
                row = np.int64(load32(numbers, at))
                at += 1
                early = stored_sigmas[s] == 0  # Rows of earlier batches need no check.
                if not early and np.int64(load64(stored_sigmas[s], row)) > before[i]:
                    continue
                counts[3] += 1
                if whole[s]:
                    counts[4] += 1
                marks[i] = 1
                if bounded:
                    tau = np.int64(load64(stored_taus[s], row))
                    if tau < lows[i] or tau > highs[i]:
                        continue
                if used == room:
                    room = 2 * room
                    wider = np.empty(room, np.int32)
                    wider[:used] = positions
                    positions = wider
                    wider = np.empty(room, np.int32)
                    wider[:used] = found_rows
                    found_rows = wider
                if used == most:
                    counts[5] = 1
                    return positions[:0].copy(), found_rows[:0].copy(), found, counts
                positions[used] = i
                found_rows[used] = row
                used += 1
                found[s] += 1
    return positions[:used].copy(), found_rows[:used].copy(), found, counts


def warm() -> None:
    """Compile the kernels, or load them from Numba's cache."""
    word, flag = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    none, no_rows = np.zeros(0, np.int64), np.zeros(0, np.int32)
    table = np.zeros((0, WORDS + 1), np.int64)
    for kind in (np.int16, np.int32):
        which, marks = np.zeros(1, kind), np.zeros(1, np.uint8)
        match_few(
            word, which, no_rows, 64, word, no_rows, 0, none, none,
            table, none, none, none, none, none, flag, 1, marks,
        )  # fmt: skip
