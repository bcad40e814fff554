"""Matching for many edges in one call: a *round* is the probes of all edges at one depth.

Each edge has its own tuples, key, stores and time bounds. For all edges, a key's parts are integers
or strings, and a match is decided only by key, arrival order and event time. So one compiled kernel
reads all edges as rows of a table, without a Python call per edge.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit

from anabranch_runtime.columns.arrays import I32, Ints
from anabranch_runtime.index.kernels import (
    ENTRIES,
    FILTER,
    HASHES,
    ROWS,
    SHIFT,
    STARTS,
    WORDS,
    mixed,
    passing,
    wider,
)
from anabranch_runtime.index.words import load8, load16, load32, load64

#: Columns of the table of segments, after the columns of :func:`kernels.match`: table number,
#: number of rows, newest batch of its rows, first row in the table of members; least and greatest
#: sigma (arrival number) that a match's newest member may have (without limits: the range of
#: int64).
TABLE, SIZE, LAST_BATCH, MEMBERS, OLDEST, NEWEST = range(WORDS + 1, WORDS + 7)
#: Columns of the table of a segment's members: addresses of sigmas (arrival numbers) and taus
#: (event times; 0: none), least and greatest event time.
SIGMAS, TAUS, LEAST, GREATEST = range(4)
#: Columns of the table of edges: first tuple that the edge sends, and the end of its tuples; number
#: of its rule; number of tuples, on this host and on others, for which pairs are counted.
FIRST, LAST, RULE, OF = range(4)
#: Columns of the table of rules: ranges of the rule's rows in the tables of keys, bounds and
#: orders; number of its lookup; 1 if equal hashes imply equal keys, else 0.
KEYS, KEYS_END, BOUNDS, BOUNDS_END, ORDERS, ORDERS_END, LOOKUP, EXACT = range(8)
#: Columns of the table of keys, per key part: row set and column of the probing tuple, and column
#: of the stored row (-1: not compared).
KEYED, COLUMN, BUILT = range(3)
#: Columns of the table of orders, per member of a match: 1 if it must have arrived before the start
#: tuple, 0 if it may be the start tuple itself; and, if tuples of a batch are ordered by stream,
#: whether its stream is the start's (0), or comes after (1) or before (-1) the start's.
LESS, STREAM = range(2)
#: Columns of the table of time bounds: row set and column of the probing tuple's event time, bound
#: in microseconds, 1 if the match is the later of the two, and the member of the match.
PARTNER, PARTNER_TAU, MICROS, LATER, MEMBER = range(5)
#: Fields of a column's location in a table: address of the values, or of the offsets of strings;
#: address of the validity bits (0: without NULLs), the bit of row 0 in these, number of bits of a
#: value (0: a string), and address of the strings' bytes.
AT, VALID, OFFSET, WIDTH, DATA = range(5)
#: Number of the column that has the sigmas (arrival numbers) of starting tuples.
SIGMA_COLUMN = 0
#: Totals of an edge: tuples; matches that arrived early enough; pairs of tuple and row, and matches
#: among them, in segments that have only rows of earlier batches within the tile; tuples with a
#: match; calls; look-ups in segments.
PROBES, MATCHES, PAIRS, HITS, FOUND, CALLS, LOOKED = range(7)
#: Totals of a store: tuples; tuples with a match; matches; look-ups avoided because of segments'
#: batches, of their event times, and of filters and empty indexes; look-ups made.
READ, READ_FOUND, READ_MATCHES, BY_BATCH, BY_TIME, HELD, READ_LOOKED = range(7)
_FOLD, _GAMMA = np.uint64(0xD6E8FEB86659FD93), np.uint64(0x9E3779B97F4A7C15)
_EARLIEST, _LATEST = np.int64(-(1 << 63)), np.int64((1 << 63) - 1)
#: Maximum entries of a bucket for a linear search; in larger buckets, bisection comes first.
_STEPS = 8


@njit(cache=True, nogil=True)
def match_round(
    edges: Ints,
    which: I32,
    rows: I32,
    rules: Ints,
    keys: Ints,
    orders: Ints,
    bounds: Ints,
    lookups: Ints,
    stores: Ints,
    outside: Ints,
    segments: Ints,
    members: Ints,
    places: Ints,
    batch: int,
    first_sigma: int,
    last_sigma: int,
    by_stream: bool,
    most: int,
    totals: Ints,
    reads: Ints,
    work: Ints,
) -> tuple[int, I32, I32, I32, Ints]:
    """Find the pairs (tuple, matching stored row) of a round, for as many edges as ``most`` allows.

    Args:
        edges, rules, keys, orders, bounds, segments, members: tables with the columns above.
        which, rows: shape (row sets, tuples): table number and row. Row set 0 has the starting
            tuples.
        lookups: per lookup, the range of its ``stores``. ``stores``: per store of a lookup, the
            range of its ``segments``. ``outside``: per store, number of segments skipped because of
            their batches.
        places: shape (columns, tables, fields of a location).
        batch: the batch of the starting tuples; ``first_sigma``, ``last_sigma``: its least and
            greatest sigma. ``by_stream``: whether its tuples are ordered by stream.
        most: maximum number of pairs.
        totals, reads: per rule and per store, the totals listed above; finished edges are added.
        work: number of lookups plus matches per segment; finished edges are added.

    Returns:
        Number of finished edges; tuple, table number and row of each pair, ordered by edge; per
        edge, the end of its pairs.
    """
    longest, lines, widest, deepest = np.int64(0), np.int64(0), np.int64(1), np.int64(0)
    for e in range(len(edges)):
        longest = max(longest, edges[e, LAST] - edges[e, FIRST])
        rule = edges[e, RULE]
        widest = max(widest, rules[rule, ORDERS_END] - rules[rule, ORDERS])
        lookup = rules[rule, LOOKUP]
        lines = max(lines, lookups[lookup, 1] - lookups[lookup, 0])
        for store in range(lookups[lookup, 0], lookups[lookup, 1]):
            deepest = max(deepest, stores[store, 1] - stores[store, 0])
    hashes, before = np.empty(longest, np.uint64), np.empty((widest, longest), np.int64)
    lows = np.empty((widest, longest), np.int64)
    highs = np.empty((widest, longest), np.int64)
    low, high = np.empty(widest, np.int64), np.empty(widest, np.int64)
    bounded = np.zeros(widest, np.bool_)
    alive, walkers = np.empty(longest, np.int64), np.empty(longest + 1, np.int32)
    hashes_at, walker_at = np.int64(hashes.ctypes.data), np.int64(walkers.ctypes.data)
    anywhere, here = np.empty(longest, np.uint8), np.empty(longest, np.uint8)
    room = max(np.int64(which.shape[1]), 1024)
    positions, tables = np.empty(room, np.int32), np.empty(room, np.int32)
    found = np.empty(room, np.int32)
    ends = np.zeros(len(edges), np.int64)
    counts = np.zeros((lines, READ_LOOKED + 1), np.int64)
    done = np.zeros((lines, deepest), np.int64)
    used = np.int64(0)
    for e in range(len(edges)):
        first, n, rule = edges[e, FIRST], edges[e, LAST] - edges[e, FIRST], edges[e, RULE]
        begun = used
        exact, order = rules[rule, EXACT] != 0, rules[rule, ORDERS]
        joined = rules[rule, ORDERS_END] - order
        living = 0
        for i in range(n):
            known, hashed = True, np.uint64(0)
            for part in range(rules[rule, KEYS], rules[rule, KEYS_END]):
                keyed, column = keys[part, KEYED], keys[part, COLUMN]
                t, row = which[keyed, first + i], np.int64(rows[keyed, first + i])
                valid = places[column, t, VALID]
                if valid != 0:
                    bit = places[column, t, OFFSET] + row
                    if (load8(valid, bit >> 3) >> np.uint8(bit & 7)) & np.uint8(1) == 0:
                        known = False
                        break
                lane = lane_of(
                    places[column, t, AT], row, places[column, t, WIDTH], places[column, t, DATA]
                )
                hashed = mixed(lane if part == rules[rule, KEYS] else hashed * _FOLD + lane)
            if not known:
                continue
            alive[living] = i
            hashes[living] = hashed
            living += 1
            sigmas = places[SIGMA_COLUMN, which[0, first + i], AT]
            sigma = np.int64(load64(sigmas, np.int64(rows[0, first + i])))
            for m in range(joined):
                if by_stream and orders[order + m, STREAM] > 0:
                    before[m, i] = first_sigma - 1
                elif by_stream and orders[order + m, STREAM] < 0:
                    before[m, i] = last_sigma
                else:
                    before[m, i] = sigma - orders[order + m, LESS]
        bounded[:] = False
        for b in range(rules[rule, BOUNDS], rules[rule, BOUNDS_END]):
            m = bounds[b, MEMBER]
            if not bounded[m]:
                lows[m, :n], highs[m, :n], bounded[m] = _EARLIEST, _LATEST, True
            partner, tau_column = bounds[b, PARTNER], bounds[b, PARTNER_TAU]
            micros = bounds[b, MICROS]
            for i in range(n):
                t = which[partner, first + i]
                row = np.int64(rows[partner, first + i])
                tau = np.int64(load64(places[tau_column, t, AT], row))
                if bounds[b, LATER] != 0:
                    highs[m, i] = min(highs[m, i], tau + micros)
                else:
                    lows[m, i] = max(lows[m, i], tau - micros)
        for m in range(joined):
            if bounded[m]:
                low[m], high[m] = lows[m, :n].min(), highs[m, :n].max()
        anywhere[:n] = 0
        lookup = rules[rule, LOOKUP]
        pairs, hits = np.int64(0), np.int64(0)
        for store in range(lookups[lookup, 0], lookups[lookup, 1]):
            line = store - lookups[lookup, 0]
            counts[line, :] = 0
            done[line, :] = 0
            here[:n] = 0
            within = np.int64(0)
            for s in range(stores[store, 0], stores[store, 1]):
                near, one = True, segments[s, MEMBERS]
                for m in range(joined):
                    if bounded[m] and (
                        members[one + m, GREATEST] < low[m] or members[one + m, LEAST] > high[m]
                    ):
                        near = False
                if not near:
                    continue
                within += 1
                current = segments[s, LAST_BATCH] >= batch
                oldest, newest = segments[s, OLDEST], segments[s, NEWEST]
                clipped = oldest != _EARLIEST or newest != _LATEST
                whole = np.int64(not current and not clipped)
                pairs += whole * segments[s, SIZE]
                last = segments[s, ENTRIES] - 1
                if last < 0:
                    counts[line, HELD] += living
                    done[line, s - stores[store, 0]] = living
                    continue
                stored, numbers = segments[s, HASHES], segments[s, ROWS]
                buckets, shift = segments[s, STARTS], np.uint64(segments[s, SHIFT])
                kept, tried = used, np.int64(-1)
                if segments[s, FILTER] != 0:
                    tried = passing(
                        hashes_at, living, segments[s, FILTER], segments[s, WORDS], walker_at
                    )
                walking = np.int64(living) if tried < 0 else tried
                counts[line, HELD] += living - walking
                for k in range(walking):
                    # An array access, so that Numba does not free the array earlier.
                    walker = np.int64(k) if tried < 0 else np.int64(walkers[k])
                    wanted = hashes[walker]
                    at, stop = entries_from(wanted, stored, buckets, shift)
                    if at >= stop or load64(stored, at) != wanted:
                        continue
                    i = alive[walker]
                    while at < stop and load64(stored, at) == wanted:
                        row = np.int64(load32(numbers, at))
                        at += 1
                        if current or clipped:
                            early, arrived = True, _EARLIEST
                            for m in range(joined):
                                sigma = np.int64(load64(members[one + m, SIGMAS], row))
                                arrived = max(arrived, sigma)
                                early &= not current or sigma <= before[m, i]
                            if not early or arrived < oldest or arrived > newest:
                                continue
                        if not exact:
                            equal = True
                            for part in range(rules[rule, KEYS], rules[rule, KEYS_END]):
                                keyed, t = keys[part, KEYED], segments[s, TABLE]
                                equal &= same_value(
                                    places[keys[part, COLUMN], which[keyed, first + i]],
                                    np.int64(rows[keyed, first + i]),
                                    places[keys[part, BUILT], t],
                                    row,
                                )
                            if not equal:
                                continue
                        counts[line, READ_MATCHES] += 1
                        hits += whole
                        here[i] = 1
                        timely = True
                        for m in range(joined):
                            if bounded[m]:
                                tau = np.int64(load64(members[one + m, TAUS], row))
                                timely &= lows[m, i] <= tau and tau <= highs[m, i]
                        if not timely:
                            continue
                        if used == most:
                            # The edge is not finished: its pairs and counts are dropped for now.
                            return (
                                e, positions[:begun].copy(), tables[:begun].copy(),
                                found[:begun].copy(), ends,
                            )  # fmt: skip
                        if used == room:
                            room = 2 * room
                            positions = wider(positions, used, room)
                            tables, found = wider(tables, used, room), wider(found, used, room)
                        positions[used] = first + i
                        tables[used] = segments[s, TABLE]
                        found[used] = row
                        used += 1
                done[line, s - stores[store, 0]] = living + used - kept
            counts[line, READ] = n
            counts[line, BY_BATCH] = living * outside[store]
            counts[line, BY_TIME] = living * (stores[store, 1] - stores[store, 0] - within)
            counts[line, READ_LOOKED] = living * within - counts[line, HELD]
            for i in range(n):
                counts[line, READ_FOUND] += here[i]
                anywhere[i] |= here[i]
        for store in range(lookups[lookup, 0], lookups[lookup, 1]):
            line = store - lookups[lookup, 0]
            reads[store] += counts[line]
            totals[rule, MATCHES] += counts[line, READ_MATCHES]
            totals[rule, LOOKED] += counts[line, READ_LOOKED]
            for s in range(stores[store, 0], stores[store, 1]):
                work[s] += done[line, s - stores[store, 0]]
        totals[rule, PROBES] += n
        totals[rule, PAIRS] += edges[e, OF] * pairs
        totals[rule, HITS] += hits
        totals[rule, CALLS] += 1
        for i in range(n):
            totals[rule, FOUND] += anywhere[i]
        ends[e] = used
    return len(edges), positions[:used].copy(), tables[:used].copy(), found[:used].copy(), ends


@njit(cache=True, nogil=True)
def lane_of(table: int, row: int, width: int, data: int) -> int:
    """Return the hash lane (``keys``) of an integer (``width`` bits) or string (``width`` 0)."""
    if width == 64:
        return load64(table, row)
    if width == 32:
        return np.uint64(np.int64(np.int32(load32(table, row))))
    if width == 16:
        return np.uint64(np.int64(np.int16(load16(table, row))))
    if width == 8:
        return np.uint64(np.int64(np.int8(load8(table, row))))
    first = np.int64(load32(table, row))
    length = np.int64(load32(table, row + 1)) - first
    lane = np.uint64(length) * _FOLD + mixed(_word_at(data + first, length))
    step = np.uint64(0)
    for at in range(8, length, 8):
        step += _GAMMA
        lane += mixed(_word_at(data + first + at, length - at) + step)
    return lane


@njit(cache=True, nogil=True)
def _word_at(address: int, left: int) -> int:
    """Return the first 8 of a string's ``left`` bytes as a word, padded with zeros."""
    if left >= 8:
        return load64(address, 0)
    word = np.uint64(0)
    for n in range(left):
        word |= np.uint64(load8(address, n)) << np.uint64(8 * n)
    return word


@njit(cache=True, nogil=True)
def same_value(one: Ints, row: int, other: Ints, place: int) -> bool:
    """Whether the values of ``row`` and ``place`` in two columns at these locations are equal."""
    if one[WIDTH] != 0:
        return lane_of(one[AT], row, one[WIDTH], 0) == lane_of(other[AT], place, other[WIDTH], 0)
    first, begin = np.int64(load32(one[AT], row)), np.int64(load32(other[AT], place))
    length = np.int64(load32(one[AT], row + 1)) - first
    if length != np.int64(load32(other[AT], place + 1)) - begin:
        return False
    same, n = True, 0
    while same and n < length:
        same = load8(one[DATA] + first, n) == load8(other[DATA] + begin, n)
        n += 1
    return same


@njit(cache=True, nogil=True)
def entries_from(wanted: int, stored: int, buckets: int, shift: int) -> tuple[int, int]:
    """Return the position of a hash index's first entry with at least the hash ``wanted``, and the
    end of the bucket. ``stored``, ``buckets``: addresses of the index's hashes and bucket starts.
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


def warm() -> None:
    """Compile the kernel that matches rounds, or load it from Numba's cache."""
    one, flat = np.zeros((1, 0), np.int32), np.zeros(0, np.int64)
    table, places = np.zeros((0, NEWEST + 1), np.int64), np.zeros((1, 1, DATA + 1), np.int64)
    match_round(
        table, one, one, table, table, table, table, table, table, flat, table, table, places,
        0, 0, 0, False, 1, table, table, flat,
    )  # fmt: skip
