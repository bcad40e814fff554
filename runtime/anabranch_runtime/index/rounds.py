"""Matching for many edges in one call: a *round* is the probes of all edges at one depth.

Each edge has its own tuples, key, segments and time bounds. For all edges, the key is one integer,
and a match is decided only by hash, arrival order and event time. So edges are rows of a table,
which saves a Python call per edge.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit

from anabranch_runtime.columns.arrays import I32, Ints
from anabranch_runtime.index.direct import entries_from, hash_of
from anabranch_runtime.index.filters import bits_of, word_of
from anabranch_runtime.index.kernels import ENTRIES, FILTER, HASHES, ROWS, SHIFT, STARTS, WORDS
from anabranch_runtime.index.words import load8, load32, load64

#: Columns of the table of segments after the columns of :func:`kernels.match`: number of the table,
#: addresses of its sigmas and event times (0: none), least and greatest event time, rows, and the
#: newest batch with rows in it. Segments with rows of earlier batches only are counted separately.
TABLE, SIGMAS, TAUS, LEAST, GREATEST, SIZE, LAST_BATCH = range(WORDS + 1, WORDS + 8)
#: Columns of the table of edges: range of the tuples that the edge sends, and number of its rule.
FIRST, LAST, RULE = range(3)
#: Columns of the table of rules: member with the key; number of the key's column; 1 if a match must
#: have arrived before the start, else 0; range in the table of bounds; number of the look-up.
KEYED, COLUMN, LESS, BOUNDS, BOUNDS_END, QUESTION = range(6)
#: Columns of the table of bounds: the member that a match is compared with, microseconds, and 1 if
#: the match is the later of the two.
MEMBER, MICROS, LATER = range(3)
#: Location of a column in a table: address of the values, address of the validity bits (0: without
#: NULLs), the bit of row 0 in the validity bits, and bits of a value.
AT, VALID, OFFSET, WIDTH = range(4)
#: Numbers of the columns that every program reads.
SIGMA_COLUMN, TAU_COLUMN = range(2)
#: Counts of an edge in one store: tuples with a key; segments whose event times overlap the bounds;
#: rows of such segments, if counted separately; look-ups saved by filters and empty indexes;
#: early enough matches; such matches in separately counted segments; tuples with a match.
ALIVE, WITHIN, STORED, HELD, MATCHES, HITS, FOUND = range(7)
_EARLIEST, _LATEST = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)


@njit(cache=True, nogil=True)
def match_round(
    edges: Ints,
    which: I32,
    rows: I32,
    rules: Ints,
    bounds: Ints,
    questions: Ints,
    stores: Ints,
    segments: Ints,
    places: Ints,
    batch: int,
    most: int,
) -> tuple[int, I32, I32, I32, Ints, Ints, Ints]:
    """Every pair (tuple, stored row) of each edge's tuples, for as many edges as fit.

    Args:
        edges, rules, bounds, segments: tables with the columns above.
        which, rows: per member and tuple, the table's number and the row. Member 0 is the starting
            tuple.
        questions: per look-up, the range of its ``stores``. ``stores``: per store of a look-up, the
            range of its ``segments``.
        places: per column and table, the column's location.
        batch: the batch of the starting tuples. ``most``: maximum number of pairs.

    Returns:
        Number of finished edges, which are the first ones; tuple, table number and row of each
        pair, ordered by edge; per edge, the end of its pairs; per edge, tuples with a match in any
        store; and per edge and store of its look-up, the counts above.
    """
    longest, lines = 0, 0
    for e in range(len(edges)):
        longest = max(longest, edges[e, LAST] - edges[e, FIRST])
        question = rules[edges[e, RULE], QUESTION]
        lines += questions[question, 1] - questions[question, 0]
    hashes, before = np.empty(longest, np.uint64), np.empty(longest, np.int64)
    lows, highs = np.empty(longest, np.int64), np.empty(longest, np.int64)
    alive = np.empty(longest, np.int64)
    anywhere, here = np.empty(longest, np.uint8), np.empty(longest, np.uint8)
    room = max(np.int64(which.shape[1]), 1024)
    positions, tables = np.empty(room, np.int32), np.empty(room, np.int32)
    found = np.empty(room, np.int32)
    ends, matched = np.zeros(len(edges), np.int64), np.zeros(len(edges), np.int64)
    counts = np.zeros((lines, FOUND + 1), np.int64)
    used, line = np.int64(0), 0
    for e in range(len(edges)):
        first, n, rule = edges[e, FIRST], edges[e, LAST] - edges[e, FIRST], edges[e, RULE]
        begun = used
        member, column, less = rules[rule, KEYED], rules[rule, COLUMN], rules[rule, LESS]
        living = 0
        for i in range(n):
            t, row = which[member, first + i], np.int64(rows[member, first + i])
            valid = places[column, t, VALID]
            if valid != 0:
                bit = places[column, t, OFFSET] + row
                if (load8(valid, bit >> 3) >> np.uint8(bit & 7)) & np.uint8(1) == 0:
                    continue
            alive[living] = i
            living += 1
            hashes[i] = hash_of(places[column, t, AT], row, places[column, t, WIDTH])
            sigmas = places[SIGMA_COLUMN, which[0, first + i], AT]
            before[i] = np.int64(load64(sigmas, np.int64(rows[0, first + i]))) - less
        bounded = rules[rule, BOUNDS] < rules[rule, BOUNDS_END]
        low, high = _EARLIEST, _LATEST
        if bounded:
            lows[:n], highs[:n] = _EARLIEST, _LATEST
            for b in range(rules[rule, BOUNDS], rules[rule, BOUNDS_END]):
                partner, micros = bounds[b, MEMBER], bounds[b, MICROS]
                for i in range(n):
                    t = which[partner, first + i]
                    row = np.int64(rows[partner, first + i])
                    tau = np.int64(load64(places[TAU_COLUMN, t, AT], row))
                    if bounds[b, LATER] != 0:
                        highs[i] = min(highs[i], tau + micros)
                    else:
                        lows[i] = max(lows[i], tau - micros)
            low, high = lows[:n].min(), highs[:n].max()
        anywhere[:n] = 0
        question = rules[rule, QUESTION]
        for store in range(questions[question, 0], questions[question, 1]):
            here[:n] = 0
            counts[line, ALIVE] = living
            for s in range(stores[store, 0], stores[store, 1]):
                if bounded and (segments[s, GREATEST] < low or segments[s, LEAST] > high):
                    continue
                counts[line, WITHIN] += 1
                current = segments[s, LAST_BATCH] >= batch
                whole = np.int64(not current)
                counts[line, STORED] += whole * segments[s, SIZE]
                last = segments[s, ENTRIES] - 1
                if last < 0:
                    counts[line, HELD] += living
                    continue
                stored, numbers = segments[s, HASHES], segments[s, ROWS]
                buckets, shift = segments[s, STARTS], np.uint64(segments[s, SHIFT])
                screen, sigmas, taus = segments[s, FILTER], segments[s, SIGMAS], segments[s, TAUS]
                for k in range(living):
                    i = alive[k]
                    wanted = hashes[i]
                    if screen != 0:
                        bits = bits_of(wanted)
                        if load64(screen, word_of(wanted, segments[s, WORDS])) & bits != bits:
                            counts[line, HELD] += 1
                            continue
                    at, stop = entries_from(wanted, stored, buckets, shift)
                    while at < stop and load64(stored, at) == wanted:
                        row = np.int64(load32(numbers, at))
                        at += 1
                        if current and np.int64(load64(sigmas, row)) > before[i]:
                            continue
                        counts[line, MATCHES] += 1
                        counts[line, HITS] += whole
                        here[i] = 1
                        if bounded:
                            tau = np.int64(load64(taus, row))
                            if tau < lows[i] or tau > highs[i]:
                                continue
                        if used == most:
                            # The pairs and counts of this unfinished edge are dropped.
                            return (
                                e, positions[:begun].copy(), tables[:begun].copy(),
                                found[:begun].copy(), ends, matched, counts,
                            )  # fmt: skip
                        if used == room:
                            room = 2 * room
                            positions = _wider(positions, room)
                            tables, found = _wider(tables, room), _wider(found, room)
                        positions[used] = first + i
                        tables[used] = segments[s, TABLE]
                        found[used] = row
                        used += 1
            for i in range(n):
                counts[line, FOUND] += here[i]
                anywhere[i] |= here[i]
            line += 1
        for i in range(n):
            matched[e] += anywhere[i]
        ends[e] = used
    return (
        len(edges), positions[:used].copy(), tables[:used].copy(), found[:used].copy(), ends,
        matched, counts,
    )  # fmt: skip


@njit(cache=True, nogil=True)
def _wider(values: I32, room: int) -> I32:
    wider = np.empty(room, np.int32)
    wider[: len(values)] = values
    return wider


def warm() -> None:
    """Compile the kernel, or load it from Numba's cache."""
    one, table = np.zeros((1, 0), np.int32), np.zeros((0, LAST_BATCH + 1), np.int64)
    match_round(table, one, one, table, table, table, table, table, np.zeros((2, 1, 4), int), 0, 1)
