"""Compiled loops over tuples of words: interning of texts, numbering of tuples, comparison.

A tuple is a row of an int64 matrix. ``texts`` marks the words that are numbers of texts: 1 in
ascending, -1 in descending order; 0 marks other words, which compare as signed integers.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.index.kernels import mixed
from anabranch_runtime.index.words import copy_bytes, load8, load64_anywhere

Ints = NDArray[np.int64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]

#: Marks a free place of a hash table, and a removed tuple.
NONE = -1


@njit(cache=True, nogil=True)
def _last_word(place: int, size: int) -> int:
    """Return the last 8 bytes of a text, or all if fewer, as a word; ``place``: its address."""
    if size >= 8:
        return load64_anywhere(place + size - 8, 0)
    word = np.uint64(0)
    for k in range(size):
        word |= np.uint64(load8(place, k)) << np.uint64(8 * k)
    return word


@njit(cache=True, nogil=True)
def _hash_bytes(place: int, size: int) -> int:
    h = np.uint64(size)
    for at in range(0, size - 8, 8):
        h = mixed(h ^ load64_anywhere(place + at, 0))
    return mixed(h ^ _last_word(place, size))


@njit(cache=True, nogil=True)
def _equal_bytes(one: int, other: int, size: int) -> bool:
    for at in range(0, size - 8, 8):
        if load64_anywhere(one + at, 0) != load64_anywhere(other + at, 0):
            return False
    return _last_word(one, size) == _last_word(other, size)


@njit(cache=True, nogil=True)
def intern(
    given: U8,
    bounds: I32,
    valid: NDArray[np.bool_],
    first: int,
    out: Ints,
    table: I32,
    hashes: U64,
    data: U8,
    ends: Ints,
    count: int,
) -> tuple[int, int]:
    """Write each text's number in the pool to ``out``; unknown texts are added to the pool.

    Args:
        given, bounds: bytes and offsets of the texts. ``valid``: mask of texts; empty: all.
        first: text with which to begin.
        table, hashes, data, ends: the pool; text ``i`` ends before byte ``ends[i + 1]``.
        count: number of texts in the pool.

    Returns:
        Number of processed texts, fewer than all if the pool is full; number of texts in it.
    """
    size = np.uint64(len(table) - 1)
    source, pool = given.ctypes.data, data.ctypes.data
    for i in range(first, len(out)):
        if len(valid) > 0 and not valid[i]:
            out[i] = 0
            continue
        low, length = np.int64(bounds[i]), np.int64(bounds[i + 1]) - np.int64(bounds[i])
        h = _hash_bytes(source + low, length)
        place = np.int64(h & size)
        known = np.int64(table[place])
        while known >= 0:
            alike = hashes[known] == h and ends[known + 1] - ends[known] == length
            if alike and _equal_bytes(source + low, pool + ends[known], length):
                break
            place = (place + 1) & np.int64(size)
            known = np.int64(table[place])
        if known < 0:
            base = ends[count]
            if count >= len(hashes) or base + length > len(data):
                return i, count
            copy_bytes(source + low, pool + base, length)
            ends[count + 1] = base + length
            hashes[count] = h
            table[place] = count
            known = count
            count += 1
        out[i] = known
    return len(out), count


@njit(cache=True, nogil=True)
def rehash(table: I32, hashes: U64, count: int) -> None:
    """Enter the first ``count`` texts' hashes into ``table``, which is empty (all :data:`NONE`)."""
    size = np.int64(len(table) - 1)
    for n in range(count):
        place = np.int64(hashes[n] & np.uint64(size))
        while table[place] >= 0:
            place = (place + 1) & size
        table[place] = n


@njit(cache=True, nogil=True)
def text_offsets(numbers: Ints, valid: NDArray[np.bool_], ends: Ints, out: Ints) -> None:
    """Write the offsets of the pool's texts ``numbers`` to ``out``: one more than texts."""
    total = np.int64(0)
    out[0] = 0
    for i in range(len(numbers)):
        if valid[i]:
            total += ends[numbers[i] + 1] - ends[numbers[i]]
        out[i + 1] = total


@njit(cache=True, nogil=True)
def text_bytes(numbers: Ints, data: U8, ends: Ints, offsets: Ints, out: U8) -> None:
    """Write the bytes of the pool's texts ``numbers`` to ``out``, at ``offsets``. For NULLs, which
    have no bytes in ``out``, the numbers are undefined."""
    source, target = data.ctypes.data, out.ctypes.data
    for i in range(len(numbers)):
        at = offsets[i]
        if offsets[i + 1] > at:
            copy_bytes(source + ends[numbers[i]], target + at, offsets[i + 1] - at)


@njit(cache=True, nogil=True)
def compare_texts(a: int, b: int, data: U8, ends: Ints) -> int:
    """Compare two texts of the pool by their bytes; return -1, 0 or 1."""
    if a == b:
        return 0
    x, y = ends[a], ends[b]
    m, n = ends[a + 1] - x, ends[b + 1] - y
    for k in range(min(m, n)):
        if data[x + k] != data[y + k]:
            return -1 if data[x + k] < data[y + k] else 1
    return -1 if m < n else 1 if m > n else 0


@njit(cache=True, nogil=True)
def compare(
    one: Ints, i: int, other: Ints, j: int, first: int, end: int, texts: Ints, data: U8, ends: Ints
) -> int:
    """Compare the words ``first`` to ``end`` of two tuples; return -1, 0 or 1."""
    for k in range(first, end):
        a, b = one[i, k], other[j, k]
        if a == b:
            continue
        if texts[k] == 0:
            return -1 if a < b else 1
        order = compare_texts(a, b, data, ends) * texts[k]
        if order != 0:
            return order
    return 0


@njit(cache=True, nogil=True)
def _hash_words(words: Ints, i: int) -> int:
    h = np.uint64(0)
    for k in range(words.shape[1]):
        h = mixed(h ^ np.uint64(words[i, k]))
    return h


@njit(cache=True, nogil=True)
def number(
    given: Ints,
    first: int,
    out: Ints,
    table: I32,
    hashes: U64,
    words: Ints,
    free: Ints,
    counts: Ints,
    fresh: Ints,
) -> int:
    """Write the slot (number) of each tuple to ``out``; new tuples get free slots.

    Args:
        first: tuple with which to begin.
        table, hashes, words: the hash table of slots; hash and tuple of each slot.
        free: stack of free slots.
        counts: highest slot used so far plus 1; free slots; slots in ``fresh``. Updated.
        fresh: receives the new slots.

    Returns:
        Number of processed tuples; fewer than all if no slot is free.
    """
    size = np.int64(len(table) - 1)
    width = words.shape[1]
    for i in range(first, len(out)):
        h = _hash_words(given, i)
        place = np.int64(h & np.uint64(size))
        slot = np.int64(table[place])
        while slot >= 0:
            if hashes[slot] == h:
                same = True
                for k in range(width):
                    if words[slot, k] != given[i, k]:
                        same = False
                        break
                if same:
                    break
            place = (place + 1) & size
            slot = np.int64(table[place])
        if slot < 0:
            if counts[1] > 0:
                counts[1] -= 1
                slot = free[counts[1]]
            elif counts[0] < len(hashes):
                slot = counts[0]
                counts[0] += 1
            else:
                return i
            for k in range(width):
                words[slot, k] = given[i, k]
            hashes[slot] = h
            table[place] = slot
            fresh[counts[2]] = slot
            counts[2] += 1
        out[i] = slot
    return len(out)


@njit(cache=True, nogil=True)
def forget_slots(slots: Ints, table: I32, hashes: U64, free: Ints, counts: Ints) -> None:
    """Remove ``slots`` from the hash table, and make them free."""
    size = np.int64(len(table) - 1)
    for i in range(len(slots)):
        slot = slots[i]
        place = np.int64(hashes[slot] & np.uint64(size))
        while table[place] != slot:
            place = (place + 1) & size
        # Later slots of the cluster are moved back, so that each remains reachable from its hash.
        hole = place
        place = (place + 1) & size
        while table[place] >= 0:
            home = np.int64(hashes[table[place]] & np.uint64(size))
            if ((place - home) & size) >= ((place - hole) & size):
                table[hole] = table[place]
                hole = place
            place = (place + 1) & size
        table[hole] = NONE
        free[counts[1]] = slot
        counts[1] += 1


@njit(cache=True, nogil=True)
def rehash_slots(table: I32, hashes: U64, used: int, dead: NDArray[np.bool_]) -> None:
    """Enter the slots below ``used`` that are not ``dead`` into the empty ``table``."""
    size = np.int64(len(table) - 1)
    for n in range(used):
        if dead[n]:
            continue
        place = np.int64(hashes[n] & np.uint64(size))
        while table[place] >= 0:
            place = (place + 1) & size
        table[place] = n


@njit(cache=True, nogil=True)
def compact(slots: Ints, marks: I32, index: Ints, touched: Ints) -> int:
    """Number the distinct ``slots`` in the order of their appearance.

    Args:
        marks: scratch, -1 per slot; reset before return.
        index: receives the number of each entry of ``slots``.
        touched: receives the distinct slots.

    Returns:
        Number of distinct slots.
    """
    count = np.int64(0)
    for i in range(len(slots)):
        slot = slots[i]
        if marks[slot] < 0:
            marks[slot] = count
            touched[count] = slot
            count += 1
        index[i] = marks[slot]
    for n in range(count):
        marks[touched[n]] = -1
    return count


@njit(cache=True, nogil=True)
def link(members: Ints, owners: Ints, heads: Ints, following: Ints, before: Ints) -> None:
    """Put each of ``members`` at the beginning of its owner's linked list.

    Args:
        heads: first member by owner. ``following``, ``before``: neighbours by member.
    """
    for i in range(len(members)):
        member, owner = members[i], owners[i]
        head = heads[owner]
        following[member], before[member] = head, NONE
        if head >= 0:
            before[head] = member
        heads[owner] = member


@njit(cache=True, nogil=True)
def unlink(members: Ints, owners: Ints, heads: Ints, following: Ints, before: Ints) -> None:
    """Remove ``members`` from their owners' linked lists; arguments as in :func:`link`."""
    for i in range(len(members)):
        after, ahead = following[members[i]], before[members[i]]
        if after >= 0:
            before[after] = ahead
        if ahead >= 0:
            following[ahead] = after
        else:
            heads[owners[i]] = after


@njit(cache=True, nogil=True)
def count_linked(owners: Ints, heads: Ints, following: Ints) -> int:
    """Count the members of the linked lists of ``owners`` (-1: none)."""
    count = 0
    for owner in owners:
        member = heads[owner] if owner >= 0 else NONE
        while member >= 0:
            count += 1
            member = following[member]
    return count


@njit(cache=True, nogil=True)
def list_linked(owners: Ints, heads: Ints, following: Ints, places: Ints, found: Ints) -> None:
    """Write the members of ``owners``' lists to ``found``, and their owners' positions."""
    count = 0
    for i in range(len(owners)):
        member = heads[owners[i]] if owners[i] >= 0 else NONE
        while member >= 0:
            places[count], found[count] = i, member
            count += 1
            member = following[member]
