"""Kernels that choose tuples by the tags of their members (``tags``).

A tuple satisfies a *choice* if each predicate of the choice is in the set of predicates of the
member's row. A row has its set's number in a column (:mod:`.predicate_sets`). For few tuples the
predicates of few choices are looked up in the sets (:func:`send`). For many tuples, each set is
translated once into bits of the choices that it satisfies (:func:`translate`, ``tags.choices``),
and the bits of a tuple's members are intersected.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

from anabranch_runtime.columns.arrays import I32, U64, Ints
from anabranch_runtime.index.predicate_sets import below_lowest, is_member
from anabranch_runtime.index.rounds import AT, FIRST, LAST, OF, RULE
from anabranch_runtime.index.words import load32, load64

#: Columns of the table of labels: row set and column of the label's sets; addresses of the sets.
SET, TAGS, PLACES, DATA = range(4)
#: Columns of the table of rules: ranges of its labels, and of its choices' predicates (choices
#: times labels); without labels all tuples pass.
LABELS, LABELS_END, CHOICES, CHOICES_END = range(4)
_FOLD, _SHIFT = np.uint64(0xD6E8FEB86659FD93), np.uint64(32)


@njit(cache=True, nogil=True)
def has_all(predicates, first, width, labels, begin, at, sets):
    """Whether a tuple satisfies the choice at ``first``; -1 is in every set."""
    for j in range(width):
        predicate = np.int64(predicates[first + j])
        if predicate >= 0 and not is_member(
            labels[begin + j, PLACES], labels[begin + j, DATA], np.int64(sets[j, at]), predicate
        ):
            return False
    return True


@njit(cache=True, nogil=True)
def send(
    edges: Ints,
    which: I32,
    rows: I32,
    rules: Ints,
    labels: Ints,
    predicates: I32,
    places: Ints,
) -> tuple[I32, Ints]:
    """Positions of the tuples that edges send, in the order of the edges, and the edges' table with
    ranges of these positions. The number of tuples for which an edge counts pairs is reduced in
    proportion.
    """
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
def slot_of(row, bits, slots):
    """The slot of equal bits, or a free one, in a hash table of numbers (-1: free)."""
    key = np.uint64(0)
    for word in row:
        key = (key ^ word) * _FOLD
        key ^= key >> _SHIFT
    slot = np.int64(key & np.uint64(len(slots) - 1))
    while slots[slot] >= 0:
        same = True
        for w in range(len(row)):
            same &= bits[slots[slot], w] == row[w]
        if same:
            break
        slot = (slot + 1) & (len(slots) - 1)
    return slot


@njit(cache=True, nogil=True)
def rehash(bits: U64, count: int, slots: I32) -> None:
    """Enter the first ``count`` rows of ``bits`` into an empty hash table of their numbers."""
    for number in range(count):
        slots[slot_of(bits[number], bits, slots)] = number


@njit(cache=True, nogil=True)
def translate(
    ends: Ints,
    holders: I32,
    wanted: I32,
    choices: I32,
    rows: U64,
    numbers: I32,
    bits: U64,
    slots: I32,
    count: int,
) -> int:
    """Number of distinct rows of ``bits`` after some sets' rows have been added.

    Args:
        ends, holders: predicate -> range of ``holders``, the sets that have it.
        wanted, choices: pairs of predicate and choice.
        rows: per set, the bits of choices without a predicate; completed.
        numbers: per set, the row of ``bits`` with its bits; filled in.
        bits: ``count`` distinct rows, with room for as many as ``rows``. ``slots``: a hash table of
            their numbers, at least twice as long.
    """
    for k in range(len(wanted)):
        predicate, choice = np.int64(wanted[k]), np.int64(choices[k])
        if predicate + 1 < len(ends):
            for at in range(ends[predicate], ends[predicate + 1]):
                rows[holders[at], choice >> 6] |= np.uint64(1) << np.uint64(choice & 63)
    for number in range(len(rows)):
        slot = slot_of(rows[number], bits, slots)
        if slots[slot] < 0:
            bits[count] = rows[number]
            slots[slot] = count
            count += 1
        numbers[number] = slots[slot]
    return count


@njit(cache=True, nogil=True)
def satisfied(labels: Ints, mask: U64, sets: I32) -> U64:
    """Bits of the choices in ``mask`` that each tuple satisfies: shape (tuples, words).

    Args:
        labels: per label, the addresses of the numbers of its sets' bits, and of the bits.
        sets: shape (labels, tuples): the tuples' sets.
    """
    width, tuples = sets.shape
    words = len(mask)
    found = np.empty((tuples, words), np.uint64)
    for i in range(tuples):
        found[i] = mask
    for j in range(width):
        numbers, bits = labels[j, 0], labels[j, 1]
        for i in range(tuples):
            at = np.int64(load32(numbers, np.int64(sets[j, i]))) * words
            for w in range(words):
                found[i, w] &= load64(bits, at + w)
    return found


@njit(cache=True, nogil=True)
def choose(held: U64) -> tuple[I32, Ints]:
    """Positions of the tuples that satisfy each choice, in the order of the choices, and after a 0
    the end of each choice's part. ``held``: bits as :func:`satisfied` returns them.
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
def wanted_pairs(
    held: U64, positions: I32, which: Any, rows: I32, columns: Ints, labels: Ints
) -> I32:
    """Indexes of the pairs (tuple, stored row) that satisfy a choice.

    Args:
        held: bits of the choices that each tuple satisfies.
        positions, which, rows: per pair, the tuple, and table and row (``which`` of length 1: all
            rows are of the first table).
        columns: shape (labels, tables): addresses of the columns with the numbers of rows' sets.
        labels: of the stored row, as for :func:`satisfied`.
    """
    words, width = held.shape[1], len(labels)
    found, used = np.empty(len(positions), np.int32), 0
    for i in range(len(positions)):
        table = np.int64(which[i if len(which) > 1 else 0])
        position, row = positions[i], np.int64(rows[i])
        some = np.uint64(0)
        if width == 1:
            number = np.int64(load32(columns[0, table], row))
            at = np.int64(load32(labels[0, 0], number)) * words
            for w in range(words):
                some |= held[position, w] & load64(labels[0, 1], at + w)
        else:
            for w in range(words):
                word = held[position, w]
                for j in range(width):
                    number = np.int64(load32(columns[j, table], row))
                    at = np.int64(load32(labels[j, 0], number)) * words
                    word &= load64(labels[j, 1], at + w)
                some |= word
        if some != np.uint64(0):
            found[used] = i
            used += 1
    return found[:used].copy()


def warm() -> None:
    """Compile the kernels, or load them from Numba's cache."""
    one, flat = np.zeros((1, 0), np.int32), np.zeros(0, np.int32)
    table, places = np.zeros((0, 4), np.int64), np.zeros((1, 1, 5), np.int64)
    send(table, one, one, table, np.zeros((1, DATA + 1), np.int64), flat, places)
    word, bits, pair = (
        np.zeros(1, np.uint64),
        np.zeros((1, 1), np.uint64),
        np.zeros((1, 2), np.int64),
    )
    slots = np.full(2, -1, np.int32)
    translate(np.zeros(1, np.int64), flat, flat, flat, bits[:0], flat, bits, slots, 0)
    rehash(bits, 0, slots)
    choose(satisfied(pair, word, one))
    for kind in (np.int16, np.int32):
        wanted_pairs(bits, flat, np.zeros(1, kind), flat, np.zeros((1, 1), np.int64), pair)
