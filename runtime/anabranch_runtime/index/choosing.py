"""Kernels that choose tuples by the tags of their members (``tags``).

A tuple satisfies a *choice* if each predicate of the choice is in the set of predicates of the
member's row. A row has its set's number in a column (:mod:`.predicate_sets`).
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit

from anabranch_runtime.columns.arrays import I32, Bools, Ints
from anabranch_runtime.index.predicate_sets import is_member
from anabranch_runtime.index.rounds import AT, FIRST, LAST, OF, RULE
from anabranch_runtime.index.words import load32, load64

#: Columns of the table of labels: row set and column of the label's sets; addresses of the sets.
SET, TAGS, PLACES, DATA = range(4)
#: Columns of the table of rules: ranges of its labels, and of its choices' predicates (choices
#: times labels); without labels all tuples pass. Beside the predicates, ``orders`` has for each
#: label the numbers of the choices, by their predicates of that label.
LABELS, LABELS_END, CHOICES, CHOICES_END = range(4)


@njit(cache=True, nogil=True)
def has(labels, j, number, predicate):
    """Whether set ``number`` of label ``j`` has a predicate; -1 is in every set."""
    if predicate < 0:
        return True
    return is_member(labels[j, PLACES], labels[j, DATA], number, predicate)


@njit(cache=True, nogil=True)
def below_lowest(word):
    """Number of bits below the lowest bit of ``word``, which is not 0."""
    x = (word & (~word + np.uint64(1))) - np.uint64(1)
    x -= (x >> np.uint64(1)) & np.uint64(0x5555555555555555)
    x = (x & np.uint64(0x3333333333333333)) + ((x >> np.uint64(2)) & np.uint64(0x3333333333333333))
    x = (x + (x >> np.uint64(4))) & np.uint64(0x0F0F0F0F0F0F0F0F)
    return np.int64((x * np.uint64(0x0101010101010101)) >> np.uint64(56))


@njit(cache=True, nogil=True)
def from_predicate(predicates, orders, first, width, j, low, high, predicate):
    """Lower bound: the first position in ``[low, high)``, in the order of label ``j``, with a
    predicate number of at least ``predicate``."""
    while low < high:
        middle = (low + high) >> 1
        choice = np.int64(orders[first + middle * width + j])
        if predicates[first + choice * width + j] < predicate:
            low = middle + 1
        else:
            high = middle
    return low


@njit(cache=True, nogil=True)
def begin_choices(predicates, first, choices, width, masks, free):
    """Fill in, per label, the bits of its predicates (``masks``), and the bits of choices without a
    predicate of the label (``free``)."""
    masks[:], free[:] = 0, 0
    for j in range(width):
        for choice in range(choices):
            predicate = np.int64(predicates[first + choice * width + j])
            if predicate < 0:
                free[j, choice >> 6] |= np.uint64(1) << np.uint64(choice & 63)
            else:
                masks[j, predicate >> 6] |= np.uint64(1) << np.uint64(predicate & 63)


@njit(cache=True, nogil=True)
def add_choices(predicates, orders, first, choices, width, j, place, predicate, held):
    """Add to ``held`` the bits of the choices with a predicate of label ``j``; returns the position
    after them, in the order of the label."""
    place = from_predicate(predicates, orders, first, width, j, place, choices, predicate)
    while place < choices:
        choice = np.int64(orders[first + place * width + j])
        if predicates[first + choice * width + j] != predicate:
            break
        held[choice >> 6] |= np.uint64(1) << np.uint64(choice & 63)
        place += 1
    return place


@njit(cache=True, nogil=True)
def slot_of(slots, number):
    """The slot of a set in a hash table of numbers, which has -1 where it is free."""
    mask = len(slots) - 1
    slot = (number * 0x9E3779B1 >> 7) & mask
    while slots[slot] != -1 and slots[slot] != number:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True, nogil=True)
def choices_of(predicates, orders, first, choices, width, labels, begin, j, number, masks, held):
    """Add to ``held`` the bits of the choices whose predicate of label ``j`` is in a set."""
    if number == 0:
        for choice in range(choices):
            held[choice >> 6] |= np.uint64(1) << np.uint64(choice & 63)
        return
    places, data = labels[begin + j, PLACES], labels[begin + j, DATA]
    at = np.int64(load64(places, 2 * number))
    size = np.int64(load64(places, 2 * number + 1))
    place = np.int64(0)
    for k in range(size):
        predicate = np.int64(load32(data, 2 * at + k))
        word = predicate >> 6
        if word >= masks.shape[1]:
            break
        if (np.int64(masks[j, word]) >> (predicate & 63)) & 1 != 0:
            place = add_choices(
                predicates, orders, first, choices, width, j, place, predicate, held
            )  # fmt: skip
    for w in range(min(-size, masks.shape[1])):
        word = load64(data, at + w) & masks[j, w]
        while word != np.uint64(0):
            predicate = (w << 6) + below_lowest(word)
            word &= word - np.uint64(1)
            place = add_choices(
                predicates, orders, first, choices, width, j, place, predicate, held
            )  # fmt: skip


@njit(cache=True, nogil=True)
def satisfied(predicates, orders, first, last, width, labels, begin, sets, tuples):
    """Bits of the choices that each tuple satisfies: shape (tuples, words).

    ``sets``: per label, the tuples' sets. A set's choices are found once.
    """
    choices = (last - first) // width
    words = (choices + 63) >> 6
    greatest = np.int64(0)
    for at in range(first, last):
        greatest = max(greatest, np.int64(predicates[at]))
    masks = np.empty((width, (greatest >> 6) + 1), np.uint64)
    free = np.empty((width, words), np.uint64)
    begin_choices(predicates, first, choices, width, masks, free)
    found = np.empty((tuples, words), np.uint64)
    # The slot of a set is its number, or hashed where the numbers are large for so few tuples.
    largest = np.int64(0)
    for j in range(width):
        for i in range(tuples):
            largest = max(largest, np.int64(sets[j, i]))
    direct, room = largest < 8 * tuples, largest + 1
    if not direct:
        room = 16
        while room < 2 * tuples:
            room *= 2
    slots, places = np.empty(room, np.int32), np.empty(room, np.int32)
    of_set = np.empty((tuples, words), np.uint64)
    for j in range(width):
        slots[:] = -1
        count = 0
        for i in range(tuples):
            number = np.int64(sets[j, i])
            slot = number if direct else slot_of(slots, number)
            if slots[slot] == -1:
                slots[slot], places[slot] = number, count
                of_set[count] = free[j]
                choices_of(
                    predicates, orders, first, choices, width, labels, begin, j, number, masks,
                    of_set[count],
                )  # fmt: skip
                count += 1
            at = places[slot]
            for w in range(words):
                if j == 0:
                    found[i, w] = of_set[at, w]
                else:
                    found[i, w] &= of_set[at, w]
    return found


@njit(cache=True, nogil=True)
def has_all(predicates, first, width, labels, begin, at, sets):
    """Whether a tuple satisfies the choice at ``first``."""
    for j in range(width):
        if not has(labels, begin + j, np.int64(sets[j, at]), np.int64(predicates[first + j])):
            return False
    return True


@njit(cache=True, nogil=True)
def any_bit(words):
    """Whether a row of bits has one."""
    found = False
    for w in range(len(words)):
        found |= words[w] != np.uint64(0)
    return found


@njit(cache=True, nogil=True)
def send(
    edges: Ints,
    which: I32,
    rows: I32,
    rules: Ints,
    labels: Ints,
    predicates: I32,
    orders: I32,
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
            start, stop = rules[rule, CHOICES], rules[rule, CHOICES_END]
            if stop - start == width:
                for i in range(last - first):
                    if has_all(predicates, start, width, labels, begin, i, sets):
                        found[used] = first + i
                        used += 1
            else:
                held = satisfied(
                    predicates, orders, start, stop, width, labels, begin, sets, last - first
                )
                for i in range(last - first):
                    if any_bit(held[i]):
                        found[used] = first + i
                        used += 1
        made[e, FIRST], made[e, LAST] = kept, used
        if last > first:
            made[e, OF] = edges[e, OF] * (used - kept) // (last - first)
    return found[:used].copy(), made


@njit(cache=True, nogil=True)
def choose(labels: Ints, predicates: I32, orders: I32, sets: I32) -> tuple[I32, Ints]:
    """Positions of the tuples that satisfy each choice, in the order of the choices, and the end of
    each choice's part. ``sets``: shape (labels, tuples).
    """
    width, tuples = sets.shape
    held = satisfied(predicates, orders, 0, len(predicates), width, labels, 0, sets, tuples)
    ends = np.zeros(len(predicates) // width + 1, np.int64)
    for i in range(tuples):
        for w in range(held.shape[1]):
            word = held[i, w]
            while word != np.uint64(0):
                ends[(w << 6) + below_lowest(word) + 1] += 1
                word &= word - np.uint64(1)
    ends = np.cumsum(ends)
    found, begun = np.empty(ends[-1], np.int32), ends[:-1].copy()
    for i in range(tuples):
        for w in range(held.shape[1]):
            word = held[i, w]
            while word != np.uint64(0):
                choice = (w << 6) + below_lowest(word)
                word &= word - np.uint64(1)
                found[begun[choice]] = i
                begun[choice] += 1
    return found, ends[1:]


@njit(cache=True, nogil=True)
def passing_any(labels: Ints, predicates: I32, orders: I32, sets: I32) -> Bools:
    """Mask of the tuples that satisfy some choice. ``sets``: shape (labels, tuples)."""
    width, tuples = sets.shape
    held = satisfied(predicates, orders, 0, len(predicates), width, labels, 0, sets, tuples)
    found = np.empty(tuples, np.bool_)
    for i in range(tuples):
        found[i] = any_bit(held[i])
    return found


def warm() -> None:
    """Compile the kernels, or load them from Numba's cache."""
    one, flat = np.zeros((1, 0), np.int32), np.zeros(0, np.int32)
    table, places = np.zeros((0, 4), np.int64), np.zeros((1, 1, 5), np.int64)
    labels = np.zeros((1, DATA + 1), np.int64)
    send(table, one, one, table, labels, flat, flat, places)
    choose(labels, flat, flat, one)
    passing_any(labels, flat, flat, one)
