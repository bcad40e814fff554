"""Kernel that finds the values at a path in a column of JSON texts.

It knows the plain part of JSON and leaves every other text to the slow reader: errors, escapes in
keys or in the value itself, values that are written in another form than they have in the text.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numba import njit

from anabranch_runtime.columns.arrays import Bools, present
from anabranch_runtime.index.words import copy_bytes, load8

#: States of a row: no value is there, a part of the text is the value, the slow reader must decide.
NOTHING, FOUND, UNKNOWN = 0, 1, 2
#: Maximum depth of values in values, length of a number, and of an integer that is a value.
_DEPTH, _NUMBER, _INTEGER = 60, 1000, 18
_QUOTE, _ESCAPE, _MINUS, _PLUS, _POINT, _ZERO, _NINE = map(ord, '"\\-+.09')
_OBJECT, _OBJECT_END, _LIST, _LIST_END, _COMMA, _COLON = map(ord, "{}[],:")
_SPACE, _TAB, _LINE, _RETURN = map(ord, " \t\n\r")
_A, _E, _F, _N, _T, _U = map(ord, "aefntu")
#: Bit that makes a letter small.
_SMALL = 32
#: Characters that may follow ``\\``, and words that are values.
_ESCAPES = np.frombuffer(b'"\\/bfnrt', np.uint8)
_TRUE, _FALSE, _NULL = (np.frombuffer(word, np.uint8) for word in (b"true", b"false", b"null"))


def values_at(column: pa.Array, path: Sequence[str | int]) -> tuple[pa.Array, Bools]:
    """Return the texts at ``path`` in a column of JSON texts, and the mask of rows that the slow
    reader must decide. The kernel decides as ``json_values`` does.
    """
    column = column.cast(pa.large_string())
    count, buffers = len(column), column.buffers()
    ends = np.frombuffer(buffers[1], np.int64)[column.offset : column.offset + count + 1]
    data = buffers[2].address if buffers[2] is not None else 0
    valid = present(column)
    names = [b"" if isinstance(step, int) else step.encode() for step in path]
    joined = pa.py_buffer(b"".join(names))
    firsts, lasts, states = _spans(
        ends,
        data,
        np.ones(count, np.bool_) if valid is None else valid,
        np.array([step if isinstance(step, int) else -1 for step in path], np.int64),
        np.cumsum([0, *map(len, names)]),
        joined.address,
    )
    found = np.zeros(count + 1, np.int64)
    np.cumsum(lasts - firsts, out=found[1:])
    there = np.packbits(states == FOUND, bitorder="little")
    parts = [pa.py_buffer(one) for one in (there, found, _copied(data, firsts, found))]
    texts = pa.Array.from_buffers(pa.large_string(), count, parts)
    return texts.cast(pa.string()), states == UNKNOWN


@njit(cache=True, nogil=True)
def _spans(ends, data, valid, positions, name_ends, names):
    """Return first byte, end and state of each row's value."""
    count = len(ends) - 1
    firsts, lasts = np.zeros(count, np.int64), np.zeros(count, np.int64)
    states = np.zeros(count, np.uint8)
    for row in range(count):
        if valid[row]:
            first, last, state = _value(data, ends[row], ends[row + 1], positions, name_ends, names)
            states[row] = state
            if state == FOUND:
                firsts[row], lasts[row] = first, last
    return firsts, lasts, states


@njit(cache=True, nogil=True)
def _copied(data, firsts, ends):
    """Return the bytes from each of ``firsts``, up to the next end each, in one array."""
    made = np.empty(ends[-1], np.uint8)
    to = made.ctypes.data
    for row in range(len(firsts)):
        copy_bytes(data + firsts[row], to + ends[row], ends[row + 1] - ends[row])
    return made


@njit(cache=True, nogil=True)
def _value(data, at, end, positions, name_ends, names):
    """Return first byte, end and state of the value at the path in the text ``[at, end)``."""
    at = _space(data, at, end)
    # A word or number may go on after its end, which the slow reader checks.
    if at == end or load8(data, at) not in (_OBJECT, _LIST) or _after(data, at, end) < 0:
        return 0, 0, UNKNOWN
    for step in range(len(positions)):
        position = positions[step]
        if load8(data, at) != (_OBJECT if position < 0 else _LIST):
            return 0, 0, NOTHING
        at = _space(data, at + 1, end)
        if position < 0:
            at = _member(data, at, end, names, name_ends[step], name_ends[step + 1])
        else:
            at = _element(data, at, end, position)
        if at < 0:
            return 0, 0, NOTHING if at == -1 else UNKNOWN
    kind = load8(data, at)
    last = _after(data, at, end)
    if kind in (_OBJECT, _LIST):
        return 0, 0, UNKNOWN
    if kind == _QUOTE:
        for place in range(at, last):
            if load8(data, place) == _ESCAPE:
                return 0, 0, UNKNOWN
        return at + 1, last - 1, FOUND
    if kind == _MINUS or _ZERO <= kind <= _NINE:
        # An integer is written as it is, but -0; other numbers may be in another form.
        first = at + 1 if kind == _MINUS else at
        if last - first > _INTEGER or (kind == _MINUS and load8(data, first) == _ZERO):
            return 0, 0, UNKNOWN
        for place in range(first, last):
            if not _ZERO <= load8(data, place) <= _NINE:
                return 0, 0, UNKNOWN
        return at, last, FOUND
    # ``null`` is a value in a list, and none in an object.
    if kind == _N and len(positions) and positions[-1] < 0:
        return 0, 0, NOTHING
    return at, last, FOUND


@njit(cache=True, nogil=True)
def _member(data, at, end, names, first, last):
    """Return the place of the first member's value with a name; -1: none, -2: not known.

    Args:
        at: the place after a valid object's bracket.
        first, last: the bytes of the name among ``names``.
    """
    while load8(data, at) == _QUOTE:
        after = _after(data, at, end)
        same = after - at - 2 == last - first
        for place in range(at + 1, after - 1):
            if load8(data, place) == _ESCAPE:
                return -2
            same = same and load8(data, place) == load8(names, first + place - at - 1)
        at = _space(data, _space(data, after, end) + 1, end)
        if same:
            return at
        at = _space(data, _after(data, at, end), end)
        if load8(data, at) == _COMMA:
            at = _space(data, at + 1, end)
    return -1


@njit(cache=True, nogil=True)
def _element(data, at, end, position):
    """Return the place of a list's element; -1: there is none.

    Args:
        at: the place after a valid list's bracket.
    """
    if load8(data, at) == _LIST_END:
        return -1
    for _ in range(position):
        at = _space(data, _after(data, at, end), end)
        if load8(data, at) != _COMMA:
            return -1
        at = _space(data, at + 1, end)
    return at


@njit(cache=True, nogil=True)
def _space(data, at, end):
    """Return the place of the first byte that is no space, or the end."""
    while at < end:
        kind = load8(data, at)
        if kind != _SPACE and kind != _LINE and kind != _RETURN and kind != _TAB:
            break
        at += 1
    return at


@njit(cache=True, nogil=True)
def _after(data, at, end):
    """Return the end of the value that begins at ``at``; -1 if it is not plain JSON."""
    depth, kinds = 0, np.uint64(0)
    while True:
        if at == end:
            return -1
        kind = load8(data, at)
        if kind in (_OBJECT, _LIST):
            if depth == _DEPTH:
                return -1
            depth += 1
            kinds = (kinds << np.uint64(1)) | np.uint64(kind == _OBJECT)
            at = _space(data, at + 1, end)
            if at == end:
                return -1
            # A closing bracket's code is that of the opening one plus 2.
            if load8(data, at) != kind + 2:
                if kind == _OBJECT:
                    at = _key(data, at, end)
                    if at < 0:
                        return -1
                continue
        elif kind == _QUOTE:
            at = _string(data, at, end)
            if at < 0:
                return -1
        else:
            at = _atom(data, at, end)
            if at < 0:
                return -1
        # After a value, or at the bracket that closes an empty one.
        while True:
            if depth == 0:
                return at
            at = _space(data, at, end)
            if at == end:
                return -1
            inside = (kinds & np.uint64(1)) == np.uint64(1)
            if load8(data, at) == _COMMA:
                at = _space(data, at + 1, end)
                if inside:
                    at = _key(data, at, end)
                    if at < 0:
                        return -1
                break
            if load8(data, at) != (_OBJECT_END if inside else _LIST_END):
                return -1
            depth -= 1
            kinds >>= np.uint64(1)
            at += 1


@njit(cache=True, nogil=True)
def _key(data, at, end):
    """Return the place of the value after a key and a colon; -1 if there is none."""
    if at == end or load8(data, at) != _QUOTE:
        return -1
    at = _string(data, at, end)
    if at < 0:
        return -1
    at = _space(data, at, end)
    if at == end or load8(data, at) != _COLON:
        return -1
    return _space(data, at + 1, end)


@njit(cache=True, nogil=True)
def _string(data, at, end):
    """Return the end of a string; -1 if it does not end or has a wrong escape."""
    at += 1
    while at < end:
        kind = load8(data, at)
        if kind == _QUOTE:
            return at + 1
        if kind == _ESCAPE:
            at += 1
            if at == end:
                return -1
            kind = load8(data, at)
            if kind == _U:
                if at + 4 >= end:
                    return -1
                for place in range(at + 1, at + 5):
                    digit = load8(data, place) | _SMALL
                    if not (_ZERO <= load8(data, place) <= _NINE or _A <= digit <= _F):
                        return -1
                at += 4
            elif not np.any(kind == _ESCAPES):
                return -1
        at += 1
    return -1


@njit(cache=True, nogil=True)
def _atom(data, at, end):
    """Return the end of a number, ``true``, ``false`` or ``null``; -1 if it is none of them."""
    first = at
    if load8(data, at) == _T:
        at = _word(data, at, end, _TRUE)
    elif load8(data, at) == _N:
        at = _word(data, at, end, _NULL)
    elif load8(data, at) == _F:
        at = _word(data, at, end, _FALSE)
    else:
        if load8(data, at) == _MINUS:
            at += 1
        begin = at
        at = _digits(data, at, end)
        if at == begin or (load8(data, begin) == _ZERO and at > begin + 1):
            return -1
        if at < end and load8(data, at) == _POINT:
            begin = at + 1
            at = _digits(data, begin, end)
            if at == begin:
                return -1
        if at < end and (load8(data, at) | _SMALL) == _E:
            at += 1
            if at < end and (load8(data, at) == _MINUS or load8(data, at) == _PLUS):
                at += 1
            begin = at
            at = _digits(data, at, end)
            if at == begin:
                return -1
        if at - first > _NUMBER:
            return -1
    return at


@njit(cache=True, nogil=True)
def _digits(data, at, end):
    while at < end and _ZERO <= load8(data, at) <= _NINE:
        at += 1
    return at


@njit(cache=True, nogil=True)
def _word(data, at, end, word):
    """Return the end of a word; -1 if it is not there."""
    if at + len(word) > end:
        return -1
    for place in range(len(word)):
        if load8(data, at + place) != word[place]:
            return -1
    return at + len(word)


def warm() -> None:
    """Compile the kernels, or load them from Numba's cache."""
    values_at(pa.array(['{"a": [1]}', None]), ("a", 0))


if __name__ == "__main__":
    # Called at installation, so that no batch waits for the compilation.
    warm()
