"""Compiled kernels of the two inner loops: matching probes with entries, and gathering values.

Both process many segments in one call. A segment's arrays are in mapped files, so kernels get their
*addresses*. The caller keeps the arrays alive and guarantees the bounds (row numbers come from an
index that was checked against its segment at opening).

:func:`match` processes probes in the order of their hashes. An index has its entries in the same
order, so every segment is read sequentially, and the entry for a probe is in the cache or in the
next cache line, however large the segment is.

Numba compiles a kernel at its first use with new argument types and caches it on disk;
``index.warming`` does so before the first worker is forked.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.index import filters, frequent, prefetch, sorting
from anabranch_runtime.index.filters import bits_of, word_of
from anabranch_runtime.index.words import copy_bytes, load8, load16, load32, load64, store8, store32

Ints = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]


#: Columns of the table of segments that :func:`match` reads.
HASHES, ROWS, STARTS, SHIFT, ENTRIES, FILTER, WORDS = range(7)
#: Maximum steps of a probe's linear search in a bucket; it continues by bisection.
_STEPS = 8
#: Number of probes first tested on a segment's filter; if most pass, it is not used further.
_TRIED = 128


@njit(cache=True, nogil=True)
def passing(hashes_at: int, probes: int, table: int, words: int, out_at: int) -> int:
    """Write the indexes of the probes that pass a filter to ``out_at``, ascending; return their
    number. Return -1 if the filter rejects too few of the first probes; then all count as passing.
    """
    step = np.int64(probes // _TRIED) + 1
    tried = np.int64(0)
    passed = np.int64(0)
    for k in range(0, probes, step):
        wanted = load64(hashes_at, np.int64(k))
        bits = bits_of(wanted)
        tried += 1
        passed += np.int64(load64(table, word_of(wanted, words)) & bits == bits)
    if 4 * passed > 3 * tried:
        return np.int64(-1)
    left = np.int64(0)
    for k in range(probes):
        wanted = load64(hashes_at, np.int64(k))
        bits = bits_of(wanted)
        store32(out_at, left, np.uint32(k))
        left += np.int64(load64(table, word_of(wanted, words)) & bits == bits)
    return left


@njit(cache=True, nogil=True)
def wider(values: I32, used: int, room: int) -> I32:
    """Return a copy of a kernel's output array with a capacity of ``room`` entries."""
    wider = np.empty(room, np.int32)
    wider[:used] = values[:used]
    return wider


@njit(cache=True, nogil=True)
def _mark(marks_at: int, positions_at: int, first: int, end: int) -> None:
    """Set the marks at the positions from ``first`` to before ``end``, unless ``marks_at`` is 0."""
    if marks_at != 0:
        for k in range(first, end):
            store8(marks_at, np.int64(load32(positions_at, k)), np.uint8(1))


@njit(cache=True, nogil=True)
def runs_in(
    segment: Ints, hashes: U64, walker: I32, ends: I32, hit: I32, begins: I32
) -> tuple[int, int, int]:
    """Find the index entries with the probes' hashes in one segment, whose index is not empty.

    Args:
        segment: a row of the table of segments. ``hashes``: of the probes.
        walker: working space; like the other arrays, one entry longer than the probes.
        hit, begins, ends: filled with the found probes, and the range of entries with each probe's
            hash.

    Returns:
        Number of found probes, of entries with their hashes, and of probes that pass the segment's
        filter.
    """
    # By address, since Numba tests in each access to an array whether the index is negative.
    hashes_at = np.int64(hashes.ctypes.data)
    walker_at, ends_at = np.int64(walker.ctypes.data), np.int64(ends.ctypes.data)
    hit_at, begins_at = np.int64(hit.ctypes.data), np.int64(begins.ctypes.data)
    stored, starts, probes = segment[HASHES], segment[STARTS], np.int64(len(hashes))
    shift, last = np.uint64(segment[SHIFT]), segment[ENTRIES] - 1
    # In each round, all unfinished probes take one step along their buckets. Without branches,
    # which could be mispredicted, they are divided into hits and the probes of the next round.
    hits = np.int64(0)
    tried = np.int64(-1)
    if segment[FILTER] != 0:
        tried = passing(hashes_at, probes, segment[FILTER], segment[WORDS], walker_at)
    walking = probes if tried < 0 else tried
    passed = walking
    for step in range(_STEPS):
        left = np.int64(0)
        for k in range(walking):
            if step == 0:
                i = np.int64(k) if tried < 0 else np.int64(load32(walker_at, k))
                wanted = load64(hashes_at, i)
                at = np.int64(load32(starts, np.int64(wanted >> shift)))
            else:
                i = np.int64(load32(walker_at, k))
                wanted = load64(hashes_at, i)
                at = np.int64(load32(ends_at, k))
            value = load64(stored, min(at, last))
            store32(hit_at, hits, np.uint32(i))
            store32(begins_at, hits, np.uint32(at))
            hits += np.int64(value == wanted)
            store32(walker_at, left, np.uint32(i))
            store32(ends_at, left, np.uint32(at + 1))
            left += np.int64(value < wanted) & np.int64(at < last)
        walking = left
    for k in range(walking):
        # Read as arrays (not by address) here, so that Numba does not free them earlier.
        i = np.int64(walker[k])
        wanted = hashes[i]
        at = np.int64(ends[k])
        high = np.int64(load32(starts, np.int64(wanted >> shift) + 1))
        end = high
        while at < high:
            middle = (at + high) >> 1
            if load64(stored, middle) < wanted:
                at = middle + 1
            else:
                high = middle
        if at < end and load64(stored, at) == wanted:
            hit[hits] = i
            begins[hits] = at
            hits += 1
    total = np.int64(0)
    for k in range(hits):
        wanted = load64(hashes_at, np.int64(load32(hit_at, k)))
        at = np.int64(load32(begins_at, k))
        end = at + 1
        while end <= last and load64(stored, end) == wanted:
            end += 1
        ends[k] = end
        total += end - at
    return hits, total, passed


@njit(cache=True, nogil=True)
def match(
    hashes: U64,
    order: I32,
    segments: Ints,
    columns: Ints,
    lows: Ints,
    highs: Ints,
    arrival: int,
    most: int,
    marks: NDArray[np.uint8],
) -> tuple[I32, I32, Ints, Ints, int, bool]:
    """Find the pairs (probe, stored row) with equal hashes that satisfy all constraints.

    Args:
        hashes: hashes of the probes, ascending (another order is slower, but right).
        order: position of each probe in the partial result.
        segments: per segment, the addresses of its index (``HASHES``, ``ROWS``, ``STARTS``), the
            shift from a hash to its bucket, the number of entries, and address and length of its
            filter (0 without one).
        columns: shape (constraints, segments): address of an int64 column; 0 if the constraint does
            not apply to the segment.
        lows, highs: shape (constraints, positions): least and greatest value that a match of the
            position may have.
        arrival: a pair is counted if it satisfies the first ``arrival`` constraints.
        most: the call is stopped once it has more than ``most`` pairs, and more pairs than probes.
        marks: set to 1 at each position with a pair that satisfies the first ``arrival``
            constraints; length 0 if not needed.

    Returns:
        Position and row of each pair, in the order of the segments; number of pairs per segment;
        number of counted pairs per segment; number of look-ups avoided by filters or empty indexes;
        whether the call was stopped.
    """
    probes, constraints = len(hashes), columns.shape[0]
    room = max(probes, 64)
    positions = np.empty(room, np.int32)
    rows = np.empty(room, np.int32)
    found = np.zeros(len(segments), np.int64)
    counted = np.zeros(len(segments), np.int64)
    walker = np.empty(probes + 1, np.int32)
    hit = np.empty(probes + 1, np.int32)
    begins, ends = np.empty(probes + 1, np.int32), np.empty(probes + 1, np.int32)
    marks_at = np.int64(marks.ctypes.data) if len(marks) > 0 else np.int64(0)
    used = np.int64(0)
    held = np.int64(0)
    for s in range(len(segments)):
        if segments[s, ENTRIES] == 0:
            held += probes
            continue
        hits, total, tried = runs_in(segments[s], hashes, walker, ends, hit, begins)
        held += probes - tried
        first = used
        if used + total > room:
            if used + total > most:
                return positions[:0].copy(), rows[:0].copy(), found, counted, held, True
            room = 2 * (used + total)
            positions, rows = wider(positions, used, room), wider(rows, used, room)
        # By address, since Numba tests in each access to an array whether the index is negative.
        positions_at, rows_at = np.int64(positions.ctypes.data), np.int64(rows.ctypes.data)
        numbers = segments[s, ROWS]
        for k in range(hits):
            position = np.uint32(order[hit[k]])
            for at in range(begins[k], ends[k]):
                store32(positions_at, used, position)
                store32(rows_at, used, load32(numbers, np.int64(at)))
                used += 1

        # Each constraint filters the pairs that satisfy the ones before, again without branches.
        counted[s] = used - first
        if arrival == 0:
            _mark(marks_at, positions_at, first, used)
        for c in range(constraints):
            column = columns[c, s]
            if column != 0:
                low_at = np.int64(lows[c].ctypes.data)
                high_at = np.int64(highs[c].ctypes.data)
                kept = first
                for k in range(first, used):
                    position, row = load32(positions_at, k), load32(rows_at, k)
                    value = np.int64(load64(column, np.int64(row)))
                    low = np.int64(load64(low_at, np.int64(position)))
                    high = np.int64(load64(high_at, np.int64(position)))
                    store32(positions_at, kept, position)
                    store32(rows_at, kept, row)
                    kept += np.int64(low <= value) & np.int64(value <= high)
                used = kept
            if c < arrival:
                counted[s] = used - first
                if c + 1 == arrival:
                    _mark(marks_at, positions_at, first, used)
        found[s] = used - first
    return positions[:used].copy(), rows[:used].copy(), found, counted, held, False


@njit(cache=True, nogil=True)
def mark_present(
    hashes: U64, order: I32, segments: Ints, marks: NDArray[np.uint8], left: I32, count: int
) -> int:
    """Mark the probes with an equal hash in some segment, without making pairs.

    Args:
        hashes, order, segments: see :func:`match`.
        marks: set to 1 at the position of each probe with an equal hash.
        left: its first ``count`` entries are the indexes of the probes to look up, ascending;
            replaced by the indexes of the probes without an equal hash.

    Returns:
        The number of probes not found.
    """
    hashes_at, left_at = np.int64(hashes.ctypes.data), np.int64(left.ctypes.data)
    for s in range(len(segments)):
        if segments[s, ENTRIES] == 0:
            continue
        stored, starts = segments[s, HASHES], segments[s, STARTS]
        shift = np.uint64(segments[s, SHIFT])
        screen, words = segments[s, FILTER], segments[s, WORDS]
        kept = np.int64(0)
        for k in range(count):
            i = np.int64(load32(left_at, k))
            wanted = load64(hashes_at, i)
            store32(left_at, kept, np.uint32(i))
            if screen != 0:
                bits = bits_of(wanted)
                if load64(screen, word_of(wanted, words)) & bits != bits:
                    kept += 1
                    continue
            bucket = np.int64(wanted >> shift)
            at = np.int64(load32(starts, bucket))
            end = np.int64(load32(starts, bucket + 1))
            high = end
            # Bisection, since a frequent value may fill a bucket.
            while at < high:
                middle = (at + high) >> 1
                if load64(stored, middle) < wanted:
                    at = middle + 1
                else:
                    high = middle
            if at < end and load64(stored, at) == wanted:
                marks[order[i]] = 1
            else:
                kept += 1
        count = kept
        if count == 0:
            break
    return count


@njit(cache=True, nogil=True)
def pick(values: Any, positions: I32, out: Any) -> None:
    """Write ``values`` at ``positions`` to ``out``: ``out[i] = values[positions[i]]``."""
    for i in range(len(positions)):
        out[i] = values[positions[i]]


@njit(cache=True, nogil=True)
def mixed(word: int) -> int:
    """Return one word mixed by the bijection ``keys.mix``."""
    h = word + np.uint64(0x9E3779B97F4A7C15)
    h = (h ^ (h >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    h = (h ^ (h >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return h ^ (h >> np.uint64(31))


@njit(cache=True, nogil=True)
def mix(words: U64, out: U64) -> None:
    """Write the bijective mix (``keys.mix``) of each of ``words`` to ``out``."""
    for i in range(len(words)):
        out[i] = mixed(words[i])


@njit(cache=True, nogil=True)
def gather64(tables: Ints, which: Any, rows: I32, out: Ints) -> None:
    """Gather 64-bit words: ``out[i]`` is word ``rows[i]`` of the array at ``tables[which[i]]``."""
    if len(tables) == 1:
        table = tables[0]
        for i in range(len(rows)):
            out[i] = load64(table, np.int64(rows[i]))
    else:
        for i in range(len(rows)):
            out[i] = load64(tables[which[i]], np.int64(rows[i]))


@njit(cache=True, nogil=True)
def gather128(tables: Ints, which: Any, rows: I32, out: Ints) -> None:
    """Gather words of 128 bits as :func:`gather64`; ``out`` has two entries per row."""
    for i in range(len(rows)):
        table = tables[which[i]] if len(tables) > 1 else tables[0]
        row = 2 * np.int64(rows[i])
        out[2 * i] = load64(table, row)
        out[2 * i + 1] = load64(table, row + 1)


@njit(cache=True, nogil=True)
def gather32(tables: Ints, which: Any, rows: I32, out: I32) -> None:
    """Gather words of 32 bits as :func:`gather64`."""
    for i in range(len(rows)):
        table = tables[which[i]] if len(tables) > 1 else tables[0]
        out[i] = load32(table, np.int64(rows[i]))


@njit(cache=True, nogil=True)
def gather16(tables: Ints, which: Any, rows: I32, out: NDArray[np.int16]) -> None:
    """Gather words of 16 bits as :func:`gather64`."""
    for i in range(len(rows)):
        table = tables[which[i]] if len(tables) > 1 else tables[0]
        out[i] = load16(table, np.int64(rows[i]))


@njit(cache=True, nogil=True)
def gather8(tables: Ints, which: Any, rows: I32, out: NDArray[np.int8]) -> None:
    """Gather bytes as :func:`gather64`."""
    for i in range(len(rows)):
        table = tables[which[i]] if len(tables) > 1 else tables[0]
        out[i] = load8(table, np.int64(rows[i]))


@njit(cache=True, nogil=True)
def gather_bits(tables: Ints, offsets: Ints, which: Any, rows: I32, out: NDArray[np.uint8]) -> int:
    """Gather bits, least significant first; the address 0 stands for an array of ones.

    Args:
        offsets: per table the bit of its row 0.
        out: ``ceil(len(rows) / 8)`` zeros, which the result replaces.

    Returns:
        Number of gathered bits that are 0.
    """
    zeros = 0
    for i in range(len(rows)):
        t = np.int64(which[i]) if len(tables) > 1 else 0
        table = tables[t]
        if table != 0:
            bit = offsets[t] + np.int64(rows[i])
            if (load8(table, bit >> 3) >> np.uint8(bit & 7)) & np.uint8(1) == 0:
                zeros += 1
                continue
        out[i >> 3] |= np.uint8(1 << (i & 7))
    return zeros


@njit(cache=True, nogil=True)
def gather_lengths(tables: Ints, which: Any, rows: I32, out: I32) -> int:
    """Write the offsets of gathered values of varying length to ``out``, which has one entry more
    than ``rows``. ``tables``: addresses of 32-bit offsets. Returns the total number of bytes; -1 if
    it exceeds 32-bit offsets."""
    total = np.int64(0)
    for i in range(len(rows)):
        out[i] = total
        table = tables[which[i]] if len(tables) > 1 else tables[0]
        row = np.int64(rows[i])
        total += np.int64(load32(table, row + 1)) - np.int64(load32(table, row))
        if total > 0x7FFFFFFF:
            return -1
    out[len(rows)] = total
    return total


@njit(cache=True, nogil=True)
def gather_bytes(
    tables: Ints, values: Ints, which: Any, rows: I32, offsets: I32, out: NDArray[np.uint8]
) -> None:
    """Write the bytes of gathered values to ``out``, at the offsets of :func:`gather_lengths`."""
    target = out.ctypes.data
    for i in range(len(rows)):
        at = np.int64(offsets[i])
        count = np.int64(offsets[i + 1]) - at
        if count > 0:
            t = np.int64(which[i]) if len(tables) > 1 else 0
            first = np.int64(load32(tables[t], np.int64(rows[i])))
            copy_bytes(values[t] + first, target + at, count)


def warm() -> None:
    """Compile the kernels of this module for the types in use, or load them from the cache."""
    sorting.warm()
    words = np.zeros(2, np.uint64)
    small = np.zeros(3, np.uint32)
    one = words.ctypes.data
    filters.warm()
    prefetch.warm()
    frequent.warm()
    segments = np.array([[one, small.ctypes.data, small.ctypes.data, 63, 1, one, 1]], np.int64)
    none = np.zeros((0, 1), np.int64)
    order = np.zeros(1, np.int32)
    match(words[:1], order, segments, none, none, none, 0, 1, np.zeros(1, np.uint8))
    mark_present(words[:1], order, segments, np.zeros(1, np.uint8), np.zeros(1, np.int32), 1)
    for kind in (np.int16, np.int32, np.int64, np.uint64):
        pick(np.zeros(1, kind), order, np.empty(1, kind))
    mix(words, np.empty(2, np.uint64))
    # Arrow's columns are read-only arrays, which are other types for Numba.
    mix(np.frombuffer(bytes(16), np.uint64), np.empty(2, np.uint64))
    tables = np.array([one], np.int64)
    # Table numbers are 16 bits in single probes, 32 bits in rounds.
    for which in (np.zeros(1, np.int16), np.zeros(1, np.int32)):
        gather64(tables, which, order, np.empty(1, np.int64))
        gather128(tables, which, order, np.empty(2, np.int64))
        gather32(tables, which, order, np.empty(1, np.int32))
        gather16(tables, which, order, np.empty(1, np.int16))
        gather8(tables, which, order, np.empty(1, np.int8))
        gather_bits(tables, np.zeros(1, np.int64), which, order, np.zeros(1, np.uint8))
        gather_lengths(tables, which, order, np.empty(2, np.int32))
        gather_bytes(tables, tables, which, order, np.zeros(2, np.int32), np.zeros(1, np.uint8))
