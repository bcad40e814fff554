"""Kernels that read the binary encoding of Avro into flat slots of values.

A *program* (``program``) has a row per type in a message. The values of a type, over all messages,
are written one after another to its *slot*: a number or the position of the value's bytes, and
whether the value is present. Message by message, a kernel reads type after type and keeps the open
records, arrays and maps on a stack. A message is bad if a value extends beyond its end or bytes are
left over; its values are dropped.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

#: Columns of a program.
KIND, ARGUMENT, FIRST, COUNT, SLOT, FLOAT, ABSENT, ABSENT_COUNT = range(8)
#: Kinds of types. ``WRONG``: branch of a union whose values do not fit the column.
NULL, BOOLEAN, INT, LONG, SINGLE, DOUBLE, BYTES, FIXED, ENUM = range(9)
RECORD, ARRAY, MAP, UNION, WRONG = range(9, 14)
#: Greatest number of records, arrays and maps that are open at once.
_DEEP = 64
#: Maximum number of items without bytes (NULLs, say) of a message, in addition to its size.
_EMPTY = 1024


@njit(cache=True, nogil=True, inline="always")
def _long(data: Any, at: Any, end: Any) -> tuple[Any, Any]:
    """Read the number at ``at``; return it and the position after it (negative: there is none)."""
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < 64:
        byte = np.uint64(data[at])
        at += 1
        if shift == 63 and byte > 1:
            break
        value |= (byte & np.uint64(127)) << shift
        if byte < 128:
            return np.int64(value >> np.uint64(1)) ^ -np.int64(value & np.uint64(1)), at
        shift += np.uint64(7)
    return 0, -1


@njit(cache=True, nogil=True)
def read_messages(
    data: Any, begins: Any, ends: Any, program: Any, kids: Any, base: Any, values: Any, sizes: Any,
    present: Any, used: Any, bad: Any, write: bool,
) -> None:  # fmt: skip
    """Read all Avro messages into slots.

    Args:
        data: bytes of the messages and of the symbols of enums.
        begins, ends: start and end of each message in ``data``.
        program, kids: the types (the first: of a message), and the numbers of their parts' types.
        base: first position of each slot in ``values`` (numbers, positions of bytes, or lengths of
            arrays), ``sizes`` (numbers of bytes) and ``present``.
        used: number of values in each slot, increased.
        bad: set to True for bad messages; messages for which it is True are not read.
        write: False: only count the values, without writing them.
    """
    saved = np.empty_like(used)
    nodes, turns = np.empty(_DEEP, np.int64), np.empty(_DEEP, np.int64)
    places = np.empty(_DEEP, np.int64)
    number = np.empty(1, np.float64)
    bits = number.view(np.int64)
    single = np.empty(1, np.uint32)
    for message in range(len(begins)):
        if bad[message]:
            # The values of a bad message were not counted, so the slots have no room for them.
            continue
        at, end = begins[message], ends[message]
        saved[:] = used
        depth, items, node = 0, 0, 0
        most = end - at + _EMPTY
        while at >= 0:
            kind, slot = program[node, KIND], program[node, SLOT]
            value: Any = np.int64(0)
            size: Any = np.int64(0)
            is_leaf = True
            if kind == UNION:
                branch, at = _long(data, at, end)
                if at < 0 or branch < 0 or branch >= program[node, COUNT]:
                    at = -1
                    break
                node = kids[program[node, FIRST] + branch]
                continue
            if kind in (INT, LONG):
                value, at = _long(data, at, end)
                if kind == INT and (value < -(1 << 31) or value >= 1 << 31):
                    at = -1
                if program[node, FLOAT]:
                    number[0] = value
                    value = bits[0]
            elif kind == BYTES:
                size, at = _long(data, at, end)
                value = at
                at = -1 if at < 0 or size < 0 or size > end - at else at + size
            elif kind in (SINGLE, DOUBLE):
                width = 8 if kind == DOUBLE else 4
                if end - at < width:
                    at = -1
                    break
                word = np.uint64(0)
                for i in range(width):
                    word |= np.uint64(data[at + i]) << np.uint64(8 * i)
                at += width
                if kind == SINGLE:
                    single[0] = np.uint32(word)
                    number[0] = single.view(np.float32)[0]
                    value = bits[0]
                else:
                    value = np.int64(word)
            elif kind == BOOLEAN:
                if at >= end or data[at] > 1:
                    at = -1
                    break
                value = np.int64(data[at])
                at += 1
            elif kind == FIXED:
                size, value = program[node, ARGUMENT], at
                at = -1 if size > end - at else at + size
            elif kind == ENUM:
                symbol, at = _long(data, at, end)
                if at < 0 or symbol < 0 or symbol >= program[node, COUNT]:
                    at = -1
                    break
                first = program[node, FIRST] + 2 * symbol
                value, size = kids[first], kids[first + 1]
            elif kind == NULL:
                is_leaf = False
                for i in range(program[node, ABSENT_COUNT]):
                    empty = kids[program[node, ABSENT] + i]
                    if write:
                        place = base[empty] + used[empty]
                        values[place], sizes[place], present[place] = 0, 0, 0
                    used[empty] += 1
            elif kind == WRONG or depth == _DEEP:
                at = -1
            else:
                is_leaf = False
                nodes[depth], turns[depth], places[depth] = node, 0, -1
                if slot >= 0:
                    if write:
                        place = base[slot] + used[slot]
                        values[place], present[place] = 0, 1
                        places[depth] = place
                    used[slot] += 1
                depth += 1
            if at < 0:
                break
            if is_leaf and slot >= 0:
                if write:
                    place = base[slot] + used[slot]
                    values[place], sizes[place], present[place] = value, size, 1
                used[slot] += 1
            # Find the next type, in the innermost open record, array or map that is not finished.
            found = False
            while depth > 0 and at >= 0:
                top = depth - 1
                node = nodes[top]
                first, turn = program[node, FIRST], turns[top]
                if program[node, KIND] == RECORD:
                    if turn < program[node, COUNT]:
                        turns[top] = turn + 1
                        node, found = kids[first + turn], True
                        break
                    depth -= 1
                    continue
                if turn == 0:
                    turn, at = _long(data, at, end)
                    if at >= 0 and turn < 0:
                        turn = -turn
                        _, at = _long(data, at, end)
                    if at < 0 or turn < 0 or turn > most - items:
                        at = -1
                        break
                    items += turn
                    if turn == 0:
                        depth -= 1
                        continue
                    if places[top] >= 0:
                        values[places[top]] += turn
                turns[top] = turn - 1
                if program[node, KIND] == MAP:
                    size, at = _long(data, at, end)
                    value = at
                    at = -1 if at < 0 or size < 0 or size > end - at else at + size
                    key = program[node, ARGUMENT]
                    if at >= 0 and key >= 0:
                        if write:
                            place = base[key] + used[key]
                            values[place], sizes[place], present[place] = value, size, 1
                        used[key] += 1
                node, found = kids[first], True
                break
            if not found:
                break
        if at != end:
            bad[message] = True
            used[:] = saved


@njit(cache=True, nogil=True)
def big_endian(data: Any, places: Any, sizes: Any, found: Any, bad: Any) -> None:
    """Convert decimals (two's complement, highest byte first) to 16 bytes, lowest first; ``bad`` is
    set for numbers without bytes, or that need more than 16."""
    for i in range(len(places)):
        place, size = places[i], sizes[i]
        if size == 0:
            bad[i] = True
            continue
        sign = 255 if data[place] > 127 else 0
        for k in range(16):
            found[i, k] = data[place + size - 1 - k] if k < size else sign
        for k in range(16, size):
            bad[i] |= data[place + size - 1 - k] != sign
        if size > 16 and (found[i, 15] > 127) != (sign == 255):
            bad[i] = True
