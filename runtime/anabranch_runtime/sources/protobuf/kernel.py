"""Kernels that read the wire format of Protobuf into flat slots of values.

A *program* (``program``) has a row per field. A value is written to its *slot*: a column of numbers
or of positions of bytes. Slots with equal numbers of values form a *domain*: one for all fields
that occur once per Kafka message, another for the elements of each repeated field. When a message
or an element begins, a row with defaults is added to its domain; later values of a field replace
earlier ones, and parts of a message are merged. The kernel keeps the open messages on a stack, up
to the depth at which Google's parsers stop. A message is bad if its bytes are malformed, or a value
has another type than its column.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit

#: Columns of a field's row. ``SLOT``: slot of its value, or of a message's presence, in ``DOMAIN``;
#: ``LIST``: slot of the number of elements, in the domain ``PARENT``, -1 if it is not repeated;
#: ``KNOWN``: first position in ``numbers`` of a closed enum's numbers, ``KNOWN_COUNT``: how many,
#: -1 if all numbers are values. ``MERGES``: whether it is one message with a ``oneof`` in it.
NUMBER, KIND, WIRE, SLOT, DOMAIN, LIST, PARENT, NODE, ONEOF, CHECKED, KNOWN, KNOWN_COUNT = range(12)
MERGES, FIELD_WIDTH = 12, 13
#: Columns of a message's row: first field and number of fields, number of ``oneof`` groups, whether
#: it is a map's entry, whether its fields must be surveyed before they are read.
FIRST, COUNT, ONEOFS, ENTRY, SURVEYED = range(5)
#: Outcome of a message: it is good, malformed, or to be rewritten (``merging``).
GOOD, BAD, MERGED = range(3)
#: Kinds of fields. ``SKIPPED``: a field of a ``oneof``, without a column. ``WRONG``: a field whose
#: values do not fit its column.
INT32, INT64, UINT32, SINT32, SINT64, BOOL, ENUM, FIXED32, SFIXED32, SINGLE, FIXED64 = range(11)
BYTES, MESSAGE, GROUP, SKIPPED, WRONG = range(11, 16)
#: Greatest number of messages and groups that are open at once.
DEEP = 100
#: Maximum number of values in one message's repeated fields: more than reasonable messages have,
#: and few enough for the memory.
MOST_VALUES = 1 << 24


@njit(cache=True, nogil=True)
def number_at(data: Any, at: Any, end: Any) -> tuple[Any, Any]:
    """Read the number at ``at``; return it and the position after it (negative: there is none)."""
    if at < end and data[at] < 128:
        return np.uint64(data[at]), at + 1
    value, shift = np.uint64(0), np.uint64(0)
    while at < end and shift < 70:
        byte = np.uint64(data[at])
        at += 1
        if shift < 64:
            value |= (byte & np.uint64(127)) << shift
        if byte < 128:
            return value, at
        shift += np.uint64(7)
    return np.uint64(0), -1


@njit(cache=True, nogil=True)
def _short(data: Any, at: Any, end: Any) -> tuple[Any, Any]:
    """Read a number of at most five bytes and 32 bits, as :func:`number_at`."""
    if at < end and data[at] < 128:
        return np.int64(data[at]), at + 1
    value, shift = np.int64(0), 0
    while at < end and shift < 35:
        byte = np.int64(data[at])
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return (value, at) if value < 1 << 32 else (np.int64(0), -1)
        shift += 7
    return np.int64(0), -1


@njit(cache=True, nogil=True)
def skip(data: Any, at: Any, end: Any, number: Any, wire: Any, depth: Any, open: Any) -> Any:
    """Return the position after the value of an unknown field; -1 if the value is malformed."""
    low = depth
    while True:
        if wire == 0:
            _, at = number_at(data, at, end)
        elif wire == 2:
            size, at = _short(data, at, end)
            at = -1 if at < 0 or size > end - at else at + size
        elif wire in (1, 5):
            width = 8 if wire == 1 else 4
            at = -1 if width > end - at else at + width
        elif wire == 3:
            if depth >= DEEP:
                return -1
            open[depth] = number
            depth += 1
        elif wire == 4:
            if depth == low or open[depth - 1] != number:
                return -1
            depth -= 1
        else:
            return -1
        if at < 0 or depth == low:
            return at
        tag, at = _short(data, at, end)
        number, wire = tag >> 3, tag & 7
        if at < 0 or number == 0:
            return -1


@njit(cache=True, nogil=True)
def is_text(data: Any, at: Any, end: Any) -> Any:
    """Whether the bytes of a value, from ``at`` to ``end``, are UTF-8."""
    while at < end:
        byte = data[at]
        if byte < 128:
            at += 1
            continue
        if byte < 0xC2 or byte > 0xF4:
            return False
        more = 1 if byte < 0xE0 else 2 if byte < 0xF0 else 3
        if more >= end - at:
            return False
        low, high = 0x80, 0xBF
        if byte == 0xE0:
            low = 0xA0
        elif byte == 0xED:
            high = 0x9F
        elif byte == 0xF0:
            low = 0x90
        elif byte == 0xF4:
            high = 0x8F
        for k in range(1, more + 1):
            if data[at + k] < low or data[at + k] > high:
                return False
            low, high = 0x80, 0xBF
        at += more + 1
    return True


@njit(cache=True, nogil=True)
def _found(fields: Any, first: Any, count: Any, number: Any, near: Any) -> Any:
    """Return the program's row of the field with this number, often after ``near``; -1: none."""
    last = first + count
    if near + 1 < last and fields[near + 1, NUMBER] == number:
        return near + 1
    if near >= first and fields[near, NUMBER] == number:
        return near
    low, high = first, last
    while low < high:
        middle = (low + high) // 2
        if fields[middle, NUMBER] < number:
            low = middle + 1
        else:
            high = middle
    return low if low < last and fields[low, NUMBER] == number else -1


@njit(cache=True, nogil=True)
def is_of(fields: Any, row: Any, wire: Any) -> Any:
    """Whether a value of this wire type can be a value of the field, as it is or packed."""
    wanted = fields[row, WIRE]
    if wanted == wire:
        return True
    return wire == 2 and fields[row, LIST] >= 0 and wanted != 3


@njit(cache=True, nogil=True)
def is_known(fields: Any, row: Any, numbers: Any, value: Any) -> Any:
    """Whether a number is one of the values of a field's enum."""
    found = fields[row, KNOWN_COUNT] < 0
    for i in range(fields[row, KNOWN_COUNT]):
        found = found or numbers[fields[row, KNOWN] + i] == value
    return found


@njit(cache=True, nogil=True)
def _survey(
    data: Any, at: Any, end: Any, fields: Any, numbers: Any, first: Any, count: Any, entry: Any,
    depth: Any, open: Any, last: Any, since: Any, seen: Any, turn: Any,
) -> tuple[Any, Any]:  # fmt: skip
    """Survey the fields of a Protobuf message before they are read.

    Args:
        last, since: per ``oneof``, its field that is set in the end, and the position from which on
            only this field is set. Both are written.
        seen, turn: per field, the last call of this function that found it; number of this call.

    Returns:
        Whether the message is a map's entry with unknown parts, which does not count as an entry;
            whether parts of a message with a ``oneof`` have to be merged.
    """
    last[:], since[:] = -1, 0
    near, odd, merged = first - 1, False, False
    while at < end:
        begin = at
        tag, at = _short(data, at, end)
        number, wire = tag >> 3, tag & 7
        if at < 0 or number == 0 or wire == 4:
            break
        row = _found(fields, first, count, number, near)
        if row < 0 or not is_of(fields, row, wire):
            odd = True
        else:
            near = row
            known = True
            if wire == 0 and fields[row, KNOWN_COUNT] >= 0:
                value, _ = number_at(data, at, end)
                known = is_known(fields, row, numbers, np.int64(np.int32(value)))
            odd = odd or not known
            group = fields[row, ONEOF]
            if group >= 0 and known:
                if last[group] >= 0 and last[group] != row:
                    since[group] = begin
                last[group] = row
            if fields[row, MERGES] > 0:
                merged = merged or seen[row] == turn
                seen[row] = turn
        at = skip(data, at, end, number, wire, depth, open)
        if at < 0:
            break
    return odd and entry, merged


@njit(cache=True, nogil=True)
def read_messages(
    data: Any, begins: Any, ends: Any, nodes: Any, fields: Any, numbers: Any, of: Any,
    defaults: Any, shown: Any, base: Any, values: Any, sizes: Any, present: Any, used: Any,
    weights: Any, bad: Any, write: bool,
) -> None:  # fmt: skip
    """Read all Protobuf messages into slots.

    Args:
        data: bytes of the messages and of the defaults.
        begins, ends: start and end of each message in ``data``.
        nodes, fields: the message types (the first: of a Kafka message), and their fields.
        numbers: numbers of closed enums.
        of, defaults, shown: per slot, its domain, and its value and presence in a new row.
        base: first position of each slot in ``values`` (numbers, positions of bytes or numbers of
            elements), ``sizes`` (of bytes) and ``present``, which begin with the defaults.
        used: number of rows in each domain, increased. ``weights``: number of slots of each domain.
        bad: set to ``BAD`` or ``MERGED``; messages for which it is set are not read.
        write: False: only count the rows.
    """
    saved = np.empty_like(used)
    node_of, limit = np.empty(DEEP + 1, np.int64), np.empty(DEEP + 1, np.int64)
    near, group = np.empty(DEEP + 1, np.int64), np.empty(DEEP + 1, np.int64)
    mute = np.empty(DEEP + 1, np.bool_)
    most = max(1, nodes[:, ONEOFS].max())
    since, last = np.empty((DEEP + 1, most), np.int64), np.empty(most, np.int64)
    open = np.empty(DEEP + 1, np.int64)
    seen, turn = np.zeros(len(fields), np.int64), 0
    number_in = np.empty(1, np.float64)
    bits = number_in.view(np.int64)
    single = np.empty(1, np.uint32)
    real = single.view(np.float32)
    for message in range(len(begins)):
        if bad[message]:
            continue
        saved[:] = used
        used[0] += 1
        at, end = begins[message], ends[message]
        depth, items, merged = 0, 0, False
        node_of[0], limit[0], group[0], mute[0] = 0, end, -1, False
        near[0] = nodes[0, FIRST] - 1
        if nodes[0, SURVEYED]:
            turn += 1
            _, merged = _survey(data, at, end, fields, numbers, nodes[0, FIRST], nodes[0, COUNT],
                                False, 0, open, last, since[0], seen, turn)  # fmt: skip
        while depth >= 0:
            stop = limit[depth]
            if at >= stop:
                if group[depth] >= 0:
                    at = -1
                    break
                depth -= 1
                continue
            begin = at
            tag, at = _short(data, at, stop)
            number, wire = tag >> 3, tag & 7
            if at < 0 or number == 0:
                at = -1
                break
            if wire == 4:
                if group[depth] != number:
                    at = -1
                    break
                depth -= 1
                continue
            node = node_of[depth]
            row = _found(fields, nodes[node, FIRST], nodes[node, COUNT], number, near[depth])
            if row < 0 or not is_of(fields, row, wire):
                if row >= 0 and wire == 2 and fields[row, WIRE] == 3 and fields[row, LIST] >= 0:
                    # Google's parser refuses repeated groups in this form, and skips other groups.
                    at = -1
                    break
                at = skip(data, at, stop, number, wire, depth, open)
                if at < 0:
                    break
                continue
            near[depth] = row
            kind = fields[row, KIND]
            quiet = mute[depth] or merged
            one = fields[row, ONEOF]
            if one >= 0 and begin < since[depth, one]:
                quiet = True
            if kind == SKIPPED:
                at = skip(data, at, stop, number, wire, depth, open)
                if at < 0:
                    break
                continue
            if kind == WRONG:
                at = skip(data, at, stop, number, wire, depth, open)
                if at < 0 or not quiet:
                    at = -1
                    break
                continue
            listed = fields[row, LIST]
            slot, domain = fields[row, SLOT], fields[row, DOMAIN]
            if kind in (MESSAGE, GROUP):
                inner = stop
                if kind == MESSAGE:
                    size, at = _short(data, at, stop)
                    if at < 0 or size > stop - at:
                        at = -1
                        break
                    inner = at + size
                if depth >= DEEP:
                    at = -1
                    break
                below = fields[row, NODE]
                count = nodes[below, COUNT]
                if nodes[below, SURVEYED]:
                    turn += 1
                    odd, more = _survey(
                        data, at, inner, fields, numbers, nodes[below, FIRST], count,
                        nodes[below, ENTRY] > 0, depth + 1, open, last, since[depth + 1], seen,
                        turn,
                    )  # fmt: skip
                    merged = merged or (more and not quiet and not odd)
                    quiet = quiet or odd or merged
                if not quiet:
                    if listed >= 0:
                        items += weights[domain]
                        if items > MOST_VALUES:
                            at = -1
                            break
                        if write:
                            values[base[listed] + used[fields[row, PARENT]] - 1] += 1
                        used[domain] += 1
                    elif write and slot >= 0:
                        present[base[slot] + used[domain] - 1] = 1
                depth += 1
                node_of[depth], limit[depth], mute[depth] = below, inner, quiet
                group[depth] = number if kind == GROUP else -1
                near[depth] = nodes[below, FIRST] - 1
                continue
            packed = wire == 2 and kind != BYTES
            until = at
            if packed:
                size, at = _short(data, at, stop)
                if at < 0 or size > stop - at:
                    at = -1
                    break
                until = at + size
            while not packed or at < until:
                value: Any = np.int64(0)
                size = np.int64(0)
                last_place = until if packed else stop
                if kind == BYTES:
                    size, at = _short(data, at, last_place)
                    value = at
                    if at < 0 or size > last_place - at:
                        at = -1
                        break
                    at += size
                    if fields[row, CHECKED] and not is_text(data, value, at):
                        at = -1
                        break
                elif kind <= ENUM:
                    word, at = number_at(data, at, last_place)
                    if at < 0:
                        break
                    if kind == INT64:
                        value = np.int64(word)
                    elif kind == UINT32:
                        value = np.int64(word & np.uint64(0xFFFFFFFF))
                    elif kind == SINT64:
                        value = np.int64(word >> np.uint64(1)) ^ -np.int64(word & np.uint64(1))
                    elif kind == SINT32:
                        half = np.int64(word & np.uint64(0xFFFFFFFF))
                        value = (half >> 1) ^ -(half & 1)
                    elif kind == BOOL:
                        value = np.int64(word != 0)
                    else:
                        half = np.int64(word & np.uint64(0xFFFFFFFF))
                        value = half - (1 << 32) if half >= 1 << 31 else half
                else:
                    width = 4 if fields[row, WIRE] == 5 else 8
                    if width > last_place - at:
                        at = -1
                        break
                    word = np.uint64(0)
                    for i in range(width):
                        word |= np.uint64(data[at + i]) << np.uint64(8 * i)
                    at += width
                    if kind == SINGLE:
                        single[0] = np.uint32(word)
                        number_in[0] = real[0]
                        value = bits[0]
                    elif kind == SFIXED32:
                        half = np.int64(word)
                        value = half - (1 << 32) if half >= 1 << 31 else half
                    else:
                        value = np.int64(word)
                known = fields[row, KNOWN_COUNT] < 0 or is_known(fields, row, numbers, value)
                if known and not quiet:
                    if listed >= 0:
                        items += 1
                        if items > MOST_VALUES:
                            at = -1
                            break
                        if write:
                            values[base[listed] + used[fields[row, PARENT]] - 1] += 1
                        used[domain] += 1
                    if write:
                        place = base[slot] + used[domain] - 1
                        values[place], present[place] = value, 1
                        if kind == BYTES:
                            sizes[place] = size
                if not packed:
                    break
            if at < 0:
                break
        if at != end or merged:
            bad[message] = BAD if at != end else MERGED
            used[:] = saved
            if write:
                # Messages without repeated fields were not counted before they are written.
                for slot in range(len(base) - 1):
                    if of[slot] == 0:
                        place = base[slot] + used[0]
                        if place < base[slot + 1]:
                            values[place], sizes[place] = defaults[slot, 0], defaults[slot, 1]
                            present[place] = shown[slot]


@njit(cache=True, nogil=True)
def index_sizes(data: Any, begins: Any, ends: Any, sizes: Any) -> None:
    """Write the number of bytes of the path of type indexes that begins each message, or -1."""
    for i in range(len(begins)):
        count, at = _short(data, begins[i], ends[i])
        if at >= 0:
            # Numbers are zigzag-encoded; a path is at most as long as the nesting of types.
            count = count >> 1 if count % 2 == 0 else DEEP + 1
            if count > DEEP:
                at = -1
            for _ in range(count):
                if at < 0:
                    break
                _, at = _short(data, at, ends[i])
        sizes[i] = at - begins[i] if at >= 0 else -1
