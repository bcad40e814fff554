"""Kernels that choose tuples by the tags of their members (``tags``).

A tuple satisfies a *choice* if each predicate of the choice is in the set of predicates of the
member's row. A row has its set's number in a column; an index's sets are rows of bits.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit

from anabranch_runtime.columns.arrays import I32, U64, Bools, Ints
from anabranch_runtime.index.words import load32, load64

#: Columns of the table of labels: row set and column of the label's sets; address of its index's
#: bits, and number of words of a set.
SET, TAGS, BITS, WORDS = range(4)
#: Columns of the table of rules: ranges of its labels, and of its choices' predicates (choices
#: times labels); without labels all tuples pass.
LABELS, LABELS_END, CHOICES, CHOICES_END = range(4)
#: See ``rounds``.
FIRST, LAST, RULE, OF = range(4)
AT = 0


@njit(cache=True, nogil=True)
def satisfies(predicates, first, labels, begin, end, at, sets):
    """Whether the sets ``sets[at[j]]`` of a tuple's labels ``[begin, end)`` have the predicates
    from ``predicates[first]`` on; a predicate -1 is in every set.
    """
    for j in range(begin, end):
        predicate = np.int64(predicates[first + j - begin])
        if predicate >= 0:
            number = np.int64(sets[j - begin, at])
            word = np.int64(load64(labels[j, BITS], number * labels[j, WORDS] + (predicate >> 6)))
            if (word >> (predicate & 63)) & 1 == 0:
                return False
    return True


@njit(cache=True, nogil=True)
def send(
    edges: Ints, which: I32, rows: I32, rules: Ints, labels: Ints, predicates: I32, places: Ints
) -> tuple[I32, Ints]:
    """Positions of the tuples that edges send, in the order of the edges, and the edges' table with
    ranges of these positions. An edge counts pairs for as large a part of its tuples as it sends.
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
        begin, end = rules[rule, LABELS], rules[rule, LABELS_END]
        kept = used
        if begin == end:
            for i in range(first, last):
                found[used] = i
                used += 1
        else:
            for j in range(begin, end):
                at, column = labels[j, SET], labels[j, TAGS]
                for i in range(first, last):
                    place = places[column, which[at, i], AT]
                    sets[j - begin, i - first] = np.int32(load32(place, np.int64(rows[at, i])))
            for i in range(first, last):
                for choice in range(rules[rule, CHOICES], rules[rule, CHOICES_END], end - begin):
                    if satisfies(predicates, choice, labels, begin, end, i - first, sets):
                        found[used] = i
                        used += 1
                        break
        made[e, FIRST], made[e, LAST] = kept, used
        if last > first:
            made[e, OF] = edges[e, OF] * (used - kept) // (last - first)
    return found[:used].copy(), made


@njit(cache=True, nogil=True)
def choose(labels: Ints, predicates: I32, sets: I32) -> tuple[I32, Ints]:
    """Positions of the tuples that satisfy each choice, in the order of the choices, and the end of
    each choice's part. ``sets``: shape (labels, tuples).
    """
    width, tuples = sets.shape
    choices = len(predicates) // width
    room = max(np.int64(tuples), 64)
    found = np.empty(room, np.int32)
    ends = np.empty(choices, np.int64)
    used = 0
    for choice in range(choices):
        for i in range(tuples):
            if satisfies(predicates, choice * width, labels, 0, width, i, sets):
                if used == room:
                    room = 2 * room
                    wider = np.empty(room, np.int32)
                    wider[:used] = found[:used]
                    found = wider
                found[used] = i
                used += 1
        ends[choice] = used
    return found[:used].copy(), ends


@njit(cache=True, nogil=True)
def passing_any(labels: Ints, predicates: I32, sets: I32) -> Bools:
    """Mask of the tuples that satisfy some choice. ``sets``: shape (labels, tuples)."""
    width, tuples = sets.shape
    found = np.zeros(tuples, np.bool_)
    for i in range(tuples):
        for choice in range(0, len(predicates), width):
            if satisfies(predicates, choice, labels, 0, width, i, sets):
                found[i] = True
                break
    return found


def choosing(bits: U64) -> tuple[int, int]:
    """Columns ``BITS`` and ``WORDS`` of a label whose index has these sets."""
    return bits.ctypes.data, bits.shape[1]


def warm() -> None:
    """Compile the kernels, or load them from Numba's cache."""
    one, flat = np.zeros((1, 0), np.int32), np.zeros(0, np.int32)
    table, places = np.zeros((0, 4), np.int64), np.zeros((1, 1, 5), np.int64)
    send(table, one, one, table, table, flat, places)
    choose(table, flat, one)
    passing_any(table, flat, one)
