"""Kernels that choose tuples by the tags of their members (``tags``).

A tuple satisfies a *choice* if each predicate of the choice is in the set of predicates of the
member's row. A column has the number of each row's set (:mod:`.predicate_sets`). For few tuples the
predicates of few choices are looked up in the sets (:func:`send`). For many tuples, each set is
translated once into bits of the choices that it satisfies (``tags.choices``), and the bits of a
tuple's members are intersected. A test returns the sets that it meets without a translation, and is
repeated after they have been translated.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import I32, U64, Ints
from anabranch_runtime.index.kernels import ENTRIES, ROWS, WORDS, runs_in, wider
from anabranch_runtime.index.predicate_sets import below_lowest, is_member
from anabranch_runtime.index.rounds import AT, FIRST, LAST, OF, RULE
from anabranch_runtime.index.words import load32, load64, store32

#: Columns of the table of labels: row set of the members' rows, column with the numbers of their
#: predicate sets, addresses of the sets' places and data.
SET, TAGS, PLACES, DATA = range(4)
#: Columns of the table of rules: range of the rule's labels, and range of its choices in the array
#: of predicates, which has one predicate per choice and label; without labels all tuples pass.
LABELS, LABELS_END, CHOICES, CHOICES_END = range(4)
#: Columns of the table of translations: addresses of sets' numbers of rows of bits, and of these
#: rows; how many there are. They are numbered from 1; a set without a row is not translated.
NUMBERS, BITS, ROW_COUNT = range(3)
WIDTH = 3
#: Number of pairs with untranslated sets after which a test ends.
MOST_LACKING = 1 << 16
_FOLD, _SHIFT = np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


@njit(cache=True, nogil=True)
def has_all(predicates, first, width, labels, begin, at, sets):
    """Whether a tuple satisfies the choice that begins at ``first``; a predicate of -1 is true."""
    for j in range(width):
        predicate = np.int64(predicates[first + j])
        if predicate >= 0 and not is_member(
            labels[begin + j, PLACES], labels[begin + j, DATA], np.int64(sets[j, at]), predicate
        ):
            return False
    return True


@njit(cache=True, nogil=True)
def send(
    edges: Ints, which: I32, rows: I32, rules: Ints, labels: Ints, predicates: I32, places: Ints
) -> tuple[I32, Ints]:
    """Choose the tuples that each edge sends: return their positions, ordered by edge, and the
    table of edges with ranges of these positions. The number of tuples for which an edge counts
    pairs is reduced in proportion."""
    total, widest, most = 0, 1, 1
    for e in range(len(edges)):
        total += edges[e, LAST] - edges[e, FIRST]
        most = max(most, edges[e, LAST] - edges[e, FIRST])
        rule = edges[e, RULE]
        widest = max(widest, rules[rule, LABELS_END] - rules[rule, LABELS])
    found = np.empty(total, np.int32)
    made = edges.copy()
    sets = np.empty((widest, most), np.int32)
    used = 0
    for e in range(len(edges)):
        first, last, rule = edges[e, FIRST], edges[e, LAST], edges[e, RULE]
        begin, width = rules[rule, LABELS], rules[rule, LABELS_END] - rules[rule, LABELS]
        kept = used
        if width == 0:
            for i in range(first, last):
                found[used] = i
                used += 1
        elif last > first:
            for j in range(width):
                at, column = labels[begin + j, SET], labels[begin + j, TAGS]
                for i in range(first, last):
                    place = places[column, which[at, i], AT]
                    sets[j, i - first] = np.int32(load32(place, np.int64(rows[at, i])))
            for i in range(last - first):
                for choice in range(rules[rule, CHOICES], rules[rule, CHOICES_END], width):
                    if has_all(predicates, choice, width, labels, begin, i, sets):
                        found[used] = first + i
                        used += 1
                        break
        made[e, FIRST], made[e, LAST] = kept, used
        if last > first:
            made[e, OF] = edges[e, OF] * (used - kept) // (last - first)
    return found[:used].copy(), made


@njit(cache=True, nogil=True)
def _slot_of(row, words, bits, slots, mask):
    """Return the slot of the bits of ``row`` (``words`` words), or a free slot (-1), in a hash
    table. Arguments are addresses, since calls with arrays would count references to them."""
    key = np.uint64(0)
    for w in range(words):
        key = (key ^ load64(row, w)) * _FOLD
        key ^= key >> _SHIFT
    slot = np.int64(key) & mask
    while True:
        number = np.int64(np.int32(load32(slots, slot)))
        if number < 0:
            return slot
        same = True
        for w in range(words):
            same &= load64(bits, number * words + w) == load64(row, w)
        if same:
            return slot
        slot = (slot + 1) & mask


@njit(cache=True, nogil=True)
def rehash(bits: U64, count: int, slots: I32) -> None:
    """Enter the numbers of the first ``count`` rows of ``bits`` into an empty hash table."""
    words, mask = bits.shape[1], np.int64(len(slots) - 1)
    bits_at, slots_at = np.int64(bits.ctypes.data), np.int64(slots.ctypes.data)
    for number in range(count):
        slots[_slot_of(bits_at + 8 * words * number, words, bits_at, slots_at, mask)] = number


@njit(cache=True, nogil=True)
def add_by_member(ends: Ints, holders: I32, wanted: I32, choices: I32, rows: U64) -> None:
    """Add to ``rows`` (bits of choices, by predicate set) the choices whose predicate a set has.

    Args:
        ends, holders: predicate -> range of ``holders``, the sets that have it.
        wanted, choices: pairs of predicate and choice.
    """
    for k in range(len(wanted)):
        predicate, choice = np.int64(wanted[k]), np.int64(choices[k])
        if predicate + 1 < len(ends):
            for at in range(ends[predicate], ends[predicate + 1]):
                rows[holders[at], choice >> 6] |= np.uint64(1) << np.uint64(choice & 63)


@njit(cache=True, nogil=True)
def add_by_set(places: Ints, data: U64, chosen: Ints, wanted: I32, choices: I32, rows: U64) -> None:
    """Add choices as :func:`add_by_member`, to row ``i`` for the set number ``chosen[i]``.

    Args:
        places, data: of a ``SetView``.
    """
    most = np.int64(0)
    for k in range(len(wanted)):
        most = max(most, np.int64(wanted[k]) + 1)
    # The choices of a predicate are linked from its head.
    heads, following = np.full(most, -1, np.int32), np.empty(len(wanted), np.int32)
    for k in range(len(wanted)):
        following[k], heads[wanted[k]] = heads[wanted[k]], k
    for i in range(len(chosen)):
        first, size = places[chosen[i], 0], places[chosen[i], 1]
        for at in range(size):
            pair = data[first + (at >> 1)] >> np.uint64(32 * (at & 1))
            member = np.int64(pair & np.uint64(0xFFFFFFFF))
            if member >= most:
                break
            k = np.int64(heads[member])
            while k >= 0:
                choice = np.int64(choices[k])
                rows[i, choice >> 6] |= np.uint64(1) << np.uint64(choice & 63)
                k = np.int64(following[k])
        for k in range(len(wanted) if size < 0 else 0):
            member, choice = np.int64(wanted[k]), np.int64(choices[k])
            if member >> 6 < -size:
                bit = (data[first + (member >> 6)] >> np.uint64(member & 63)) & np.uint64(1)
                rows[i, choice >> 6] |= bit << np.uint64(choice & 63)


@njit(cache=True, nogil=True)
def number_rows(rows: U64, sets: Ints, numbers: I32, bits: U64, slots: I32, count: int) -> int:
    """Give each of ``sets`` the number, from 1, of its row among the distinct rows of ``bits``;
    return how many these are.

    Args:
        bits: ``count`` distinct rows, with room for as many as ``rows``. ``slots``: a hash table of
            their numbers, at least twice as long.
    """
    words, mask = bits.shape[1], np.int64(len(slots) - 1)
    rows_at, bits_at = np.int64(rows.ctypes.data), np.int64(bits.ctypes.data)
    slots_at = np.int64(slots.ctypes.data)
    for i in range(len(rows)):
        slot = _slot_of(rows_at + 8 * words * i, words, bits_at, slots_at, mask)
        if slots[slot] < 0:
            for w in range(words):
                bits[count, w] = rows[i, w]
            slots[slot] = count
            count += 1
        numbers[sets[i]] = slots[slot] + 1
    return count


@njit(cache=True, nogil=True)
def satisfied(labels: Ints, mask: U64, sets: I32) -> U64:
    """Return the bits of the choices in ``mask`` that tuples satisfy: shape (tuples, words).

    Args:
        labels: per label, a row of the table of translations.
        sets: shape (labels, tuples): numbers of the predicate sets of the tuples' members, which
            are translated.
    """
    width, tuples = sets.shape
    words = len(mask)
    found = np.empty((tuples, words), np.uint64)
    for i in range(tuples):
        for w in range(words):
            found[i, w] = mask[w]
    for j in range(width):
        numbers, bits = labels[j, NUMBERS], labels[j, BITS]
        for i in range(tuples):
            at = (np.int64(load32(numbers, np.int64(sets[j, i]))) - 1) * words
            for w in range(words):
                found[i, w] &= load64(bits, at + w)
    return found


@njit(cache=True, nogil=True)
def choose(held: U64) -> tuple[I32, Ints]:
    """Return the positions of the tuples that satisfy each choice, ordered by choice, and an array
    with 0 and the end of each choice's positions. ``held``: bits as :func:`satisfied` returns them.
    """
    tuples, words = held.shape
    ends = np.zeros(64 * words + 1, np.int64)
    for i in range(tuples):
        for w in range(words):
            word = held[i, w]
            while word != np.uint64(0):
                ends[(w << 6) + below_lowest(word) + 1] += 1
                word &= word - np.uint64(1)
    ends = np.cumsum(ends)
    found, begun = np.empty(ends[-1], np.int32), ends[:-1].copy()
    for i in range(tuples):
        for w in range(words):
            word = held[i, w]
            while word != np.uint64(0):
                choice = (w << 6) + below_lowest(word)
                word &= word - np.uint64(1)
                found[begun[choice]] = i
                begun[choice] += 1
    return found, ends


@njit(cache=True, nogil=True)
def timely(positions: I32, parts: Ints, bounds: Ints, ends: Ints, taus: Ints) -> Ints:
    """Count the joined tuples of each part that are within all time bounds of the part.

    Args:
        positions: tuples of all parts. ``parts``: per part, its begin and end in ``positions``.
        bounds: per bound, the later and the earlier row of ``taus`` and their greatest difference.
            ``ends``: 0, and the end of each part's bounds.
        taus: shape (labels, tuples): event times.
    """
    found = np.zeros(len(parts), np.int64)
    for n in range(len(parts)):
        first, last = ends[n], ends[n + 1]
        for k in range(parts[n, 0], parts[n, 1]):
            at, held = positions[k], True
            for b in range(first, last):
                held &= taus[bounds[b, 0], at] - taus[bounds[b, 1], at] <= bounds[b, 2]
            found[n] += held
    return found


@dataclass(frozen=True, slots=True)
class PairTest:
    """A test of pairs (probing tuple, stored row): whether a pair satisfies some choice.

    Attributes:
        ends, words, bits: satisfied choices of the probing tuples, from :func:`words_of`.
            ``width``: number of words of all choices.
        columns: shape (labels, tables): addresses of the columns with the numbers of rows' sets.
        labels: labels of the stored row, as in :func:`satisfied`.
        completed: translates sets, given as rows (label, set); returns the test to repeat.
        kept: owners of memory.
    """

    ends: Ints
    words: I32
    bits: U64
    width: int
    columns: Ints
    labels: Ints
    completed: Callable[[Ints], PairTest]
    kept: object

    @property
    def arguments(self) -> tuple[Ints, I32, U64, int, Ints, Ints]:
        """The attributes that kernels take as arguments, in their order."""
        return self.ends, self.words, self.bits, self.width, self.columns, self.labels


@njit(cache=True, nogil=True)
def words_of(held: U64) -> tuple[Ints, I32, U64]:
    """Return the non-zero words of each tuple's bits: an array of 0 and the end of each tuple's
    words; the number and the value of each word. Most tuples satisfy few of many choices."""
    ends = np.zeros(len(held) + 1, np.int64)
    words, bits = np.empty(held.size, np.int32), np.empty(held.size, np.uint64)
    used = 0
    for i in range(len(held)):
        for w in range(held.shape[1]):
            if held[i, w] != np.uint64(0):
                words[used], bits[used] = w, held[i, w]
                used += 1
        ends[i + 1] = used
    return ends, words[:used].copy(), bits[:used].copy()


@njit(cache=True, nogil=True)
def _wanted(first, end, words, bits, width, columns, tables, labels, count, row):
    """Return 1 if a pair satisfies a choice, else 0; if some set is not translated, -1 minus the
    number of its label. A pair is a tuple (with the words from ``first`` to before ``end``) and a
    stored row. ``words``, ``bits``, ``labels``: addresses of arrays of a :class:`PairTest`;
    ``columns``: address of the first label's column in the row's table; the next label's column is
    ``tables`` words further. Calls with arrays would count references to them."""
    for k in range(first, end):
        word, w = load64(bits, k), np.int64(load32(words, k))
        for j in range(count):
            number = np.int64(load32(np.int64(load64(columns, j * tables)), row))
            label = labels + 8 * WIDTH * j
            at = np.int64(load32(np.int64(load64(label, NUMBERS)), number)) - 1
            if at < 0 or at >= np.int64(load64(label, ROW_COUNT)):
                return -1 - j
            word &= load64(np.int64(load64(label, BITS)), at * width + w)
        if word != np.uint64(0):
            return 1
    return 0


@njit(cache=True, nogil=True)
def _met(met, count, label, column, tables, row):
    """Add an untranslated set to the table ``met`` with ``count`` rows; return the table."""
    if count == len(met):
        longer = np.empty((max(64, 4 * count), 2), np.int64)
        longer[:count] = met
        met = longer
    met[count, 0] = label
    met[count, 1] = np.int64(load32(np.int64(load64(column, label * tables)), row))
    return met


@njit(cache=True, nogil=True)
def wanted_pairs(
    ends: Ints,
    words: I32,
    bits: U64,
    width: int,
    columns: Ints,
    labels: Ints,
    positions: I32,
    which: Any,
    rows: I32,
) -> tuple[I32, Ints]:
    """Return the indexes of the pairs (tuple, stored row) that satisfy at least one choice, and the
    sets that were met without a translation, as rows (label, set).

    Args:
        ends, words, bits, width, columns, labels: of a :class:`PairTest`.
        positions, which, rows: per pair, its tuple, and table and row of its stored row (``which``
            of length 1: all rows are in the first table).
    """
    found, used = np.empty(len(positions), np.int32), 0
    met, lacking = np.empty((0, 2), np.int64), 0
    count, tables = columns.shape
    columns_at, labels_at = np.int64(columns.ctypes.data), np.int64(labels.ctypes.data)
    words_at, bits_at = np.int64(words.ctypes.data), np.int64(bits.ctypes.data)
    for i in range(len(positions)):
        first, end = ends[positions[i]], ends[positions[i] + 1]
        column = columns_at + 8 * np.int64(which[i if len(which) > 1 else 0])
        row = np.int64(rows[i])
        held = _wanted(first, end, words_at, bits_at, width, column, tables, labels_at, count, row)
        if held > 0:
            found[used] = i
            used += 1
        elif held < 0:
            met = _met(met, lacking, -1 - held, column, tables, row)
            lacking += 1
            if lacking == MOST_LACKING:
                break
    return found[:used].copy(), met[:lacking]


@njit(cache=True, nogil=True)
def match_wanted(
    hashes: U64,
    order: I32,
    segments: Ints,
    columns: Ints,
    lows: Ints,
    highs: Ints,
    arrival: int,
    most: int,
    marks: NDArray[np.uint8],
    ends: Ints,
    words: I32,
    bits: U64,
    width: int,
    sets: Ints,
    labels: Ints,
) -> tuple[I32, I32, Ints, Ints, int, bool, Ints]:
    """Match as ``kernels.match``, but return only pairs that satisfy a choice; all are counted.
    Return sets without a translation, too, as :func:`wanted_pairs`; if there are any, the rest is
    not complete. ``ends`` to ``labels``: attributes of a :class:`PairTest` of the segments."""
    probes, constraints = len(hashes), columns.shape[0]
    room = max(probes, 64)
    positions, rows = np.empty(room, np.int32), np.empty(room, np.int32)
    found, counted = np.zeros(len(segments), np.int64), np.zeros(len(segments), np.int64)
    walker, hit = np.empty(probes + 1, np.int32), np.empty(probes + 1, np.int32)
    begins, stops = np.empty(probes + 1, np.int32), np.empty(probes + 1, np.int32)
    count, labels_at = np.int64(len(labels)), np.int64(labels.ctypes.data)
    words_at, bits_at = np.int64(words.ctypes.data), np.int64(bits.ctypes.data)
    sets_at, limits_at = np.int64(sets.ctypes.data), np.int64(columns.ctypes.data)
    lows_at, highs_at = np.int64(lows.ctypes.data), np.int64(highs.ctypes.data)
    tables, tuples = np.int64(len(segments)), np.int64(lows.shape[1])
    numbers_at = there_at = known = np.int64(0)
    if count == 1:
        numbers_at, there_at = labels[0, NUMBERS], labels[0, BITS]
        known = labels[0, ROW_COUNT]
    used, avoided = np.int64(0), np.int64(0)
    met, lacking = np.empty((0, 2), np.int64), 0
    for s in range(len(segments)):
        if segments[s, ENTRIES] == 0:
            avoided += probes
            continue
        hits, total, tried = runs_in(segments[s], hashes, walker, stops, hit, begins)
        avoided += probes - tried
        if used + total > room:
            if used + total > most:
                return positions[:0], rows[:0], found, counted, avoided, True, met[:0]
            room = max(2 * room, used + total)
            positions, rows = wider(positions, used, room), wider(rows, used, room)
        positions_at, rows_at = np.int64(positions.ctypes.data), np.int64(rows.ctypes.data)
        first, numbers = used, segments[s, ROWS]
        column, limits = sets_at + 8 * s, limits_at + 8 * s
        # Most segments are older than the batch, and most rules test one label of a row: then the
        # loop over pairs neither tests limits nor loads their addresses.
        limited = _has_limits(limits, tables, 0, arrival)
        timed = _has_limits(limits, tables, arrival, constraints)
        own = np.int64(load64(column, 0)) if count == 1 else np.int64(0)
        for k in range(hits):
            position, early = np.int64(order[hit[k]]), np.int64(0)
            begin, end = ends[position], ends[position + 1]
            low, high = lows_at + 8 * position, highs_at + 8 * position
            for at in range(begins[k], stops[k]):
                row = np.int64(load32(numbers, np.int64(at)))
                if limited and not _inside(limits, tables, low, high, tuples, 0, arrival, row):
                    continue
                early += 1
                if count == 1:
                    at_bits = np.int64(load32(numbers_at, np.int64(load32(own, row)))) - 1
                    if at_bits < 0 or at_bits >= known:
                        met = _met(met, lacking, 0, column, tables, row)
                        lacking += 1
                        continue
                    there = there_at + 8 * width * at_bits
                    some = np.uint64(0)
                    for j in range(begin, end):
                        word = np.int64(load32(words_at, np.int64(j)))
                        some |= load64(bits_at, np.int64(j)) & load64(there, word)
                    if some == np.uint64(0):
                        continue
                else:
                    held = _wanted(
                        begin, end, words_at, bits_at, width, column, tables, labels_at, count, row
                    )
                    if held < 0:
                        met = _met(met, lacking, -1 - held, column, tables, row)
                        lacking += 1
                    if held <= 0:
                        continue
                if timed and not _inside(
                    limits, tables, low, high, tuples, arrival, constraints, row
                ):
                    continue
                store32(positions_at, used, np.uint32(position))
                store32(rows_at, used, np.uint32(row))
                used += 1
            counted[s] += early
            if len(marks) > 0 and early > 0:
                marks[position] = 1
            if lacking >= MOST_LACKING:
                return positions[:0], rows[:0], found, counted, avoided, False, met[:lacking]
        found[s] = used - first
    some, of_them = positions[:used].copy(), rows[:used].copy()
    return some, of_them, found, counted, avoided, False, met[:lacking]


@njit(cache=True, nogil=True)
def _has_limits(columns, tables, first, last):
    """Whether constraints from ``first`` to before ``last`` limit the rows of any segment."""
    found = False
    for c in range(first, last):
        found |= load64(columns, c * tables) != np.uint64(0)
    return found


@njit(cache=True, nogil=True)
def _inside(columns, tables, low, high, tuples, first, last, row):
    """Whether a stored row satisfies the constraints; arguments are addresses and numbers."""
    for c in range(first, last):
        column = np.int64(load64(columns, c * tables))
        if column != 0:
            value = np.int64(load64(column, row))
            least, most = load64(low, c * tuples), load64(high, c * tuples)
            if value < np.int64(least) or value > np.int64(most):
                return False
    return True


def warm() -> None:
    """Compile the kernels that choose tuples, or load them from Numba's cache."""
    one, flat = np.zeros((1, 0), np.int32), np.zeros(0, np.int32)
    table, places = np.zeros((0, 4), np.int64), np.zeros((1, 1, 5), np.int64)
    send(table, one, one, table, np.zeros((1, DATA + 1), np.int64), flat, places)
    word, bits, pair = (
        np.zeros(1, np.uint64),
        np.zeros((1, 1), np.uint64),
        np.zeros((1, WIDTH), np.int64),
    )
    slots = np.full(2, -1, np.int32)
    add_by_member(np.zeros(1, np.int64), flat, flat, flat, bits[:0])
    add_by_set(pair[:0], word, pair[:0, 0].copy(), flat, flat, bits[:0])
    number_rows(bits[:0], pair[:0, 0].copy(), flat, bits, slots, 0)
    rehash(bits, 0, slots)
    choose(satisfied(pair, word, one))
    timely(flat, pair[:0], table, table[:, 0].copy(), table)
    given = *words_of(bits), 1
    for kind in (np.int16, np.int32):
        which = np.zeros(1, kind)
        wanted_pairs(*given, np.zeros((1, 1), np.int64), pair, flat, which, flat)
    constraints, marks = np.zeros((0, 1), np.int64), np.zeros(1, np.uint8)
    segments = np.zeros((0, WORDS + 1), np.int64)
    one = np.zeros((1, 0), np.int64)
    match_wanted(
        word[:0], flat, segments, constraints, constraints, constraints, 0, 1, marks,
        *given, one, pair,
    )  # fmt: skip
