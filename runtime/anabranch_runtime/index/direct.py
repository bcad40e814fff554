"""Matching of few probes: from the key column of a partial result to its pairs in one call.

:func:`kernels.match` wants hashes in order and bounds as columns, which take a dozen calls to make:
worth it for many probes, and most of the time where there are few. Here a probe's key is read
where it lies, hashed and looked up at once, as long as a key is one integer without NULLs.
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

#: Entries of a bucket that are gone through one by one; more are bisected.
_STEPS = 8


@njit(cache=True, nogil=True)
def hash_of(table: int, row: int, width: int) -> int:
    """The hash of an integer of ``width`` bits, as ``keys.key_vector`` has it."""
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
    """Where the entries of an index (its ``stored`` hashes and ``buckets``) that have the hash
    ``wanted`` begin if there are any, and the end of its bucket.
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
    """Every pair (position, stored row) of equal keys that satisfies order of arrival and bounds.

    Args:
        keys: per table of the partial result the address of its key column, whose values have
            ``width`` bits; position ``i`` is row ``rows[i]`` of table ``which[i]``.
        sigmas: of one entry, the address of the sigmas of the tuples that have arrived; position
            ``i`` is row ``starts[i]`` there. A match of this batch has a sigma of at most that one,
            less ``less``.
        lows, highs: least and greatest event time of a match, per position; empty: any.
        segments: as of :func:`kernels.match`.
        stored_sigmas: per segment the address of its sigmas, 0 where all rows arrived earlier.
        stored_taus, least, greatest: per segment the address of its event times, and their range;
            not looked at where there are no bounds.
        sizes: rows per segment. ``whole``: mask of the segments with separate counts.
        most: greatest number of pairs.
        marks: becomes 1 at each position with a match that arrived early enough.

    Returns:
        position and row of each pair, in the order of the segments; pairs per segment; and, as one
        array: segments that may have a match by their event times, rows of these segments if
        ``whole``, number of skipped segments, matches that arrived early enough, such matches in
        ``whole`` segments, and 1 where there were too many pairs.
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
                early = stored_sigmas[s] == 0  # Then there is nothing to be read.
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
    """Compile, or load from the cache."""
    word, flag = np.zeros(1, np.int64), np.zeros(1, np.bool_)
    none, no_rows = np.zeros(0, np.int64), np.zeros(0, np.int32)
    table = np.zeros((0, WORDS + 1), np.int64)
    for kind in (np.int16, np.int32):
        which, marks = np.zeros(1, kind), np.zeros(1, np.uint8)
        match_few(
            word, which, no_rows, 64, word, no_rows, 0, none, none,
            table, none, none, none, none, none, flag, 1, marks,
        )  # fmt: skip
