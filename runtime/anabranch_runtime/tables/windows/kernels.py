"""Compiled parts of window functions: one pass over sorted rows.

A window frame consists of pieces: half-open intervals of row numbers within a partition, whose
limits never move back from row to row. So each row enters and leaves a piece once. Limits of pieces
are matrices with a line per piece.
"""
# Compiled code has Numba's types: callers are checked, bodies are not.
# mypy: ignore-errors

from __future__ import annotations

import numpy as np
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.tables.kernels import compare
from anabranch_runtime.tables.sums import (
    BESIDE_COUNT,
    FLOAT_WORDS,
    add_decimal,
    add_float,
    float_sum,
)

Ints = NDArray[np.int64]
U64 = NDArray[np.uint64]
U8 = NDArray[np.uint8]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]

#: Words of a sum of integers or decimals.
SUM_WORDS = 3
_LEAST, _GREATEST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


@njit(cache=True, nogil=True)
def limits(starts: Ints, ends: Ints, keys: Ints, distance: int, beyond: bool, out: Ints) -> None:
    """Find, per row, the first row of its segment whose key is at least (if ``beyond``: greater
    than) the row's key plus ``distance``; if there is none, the segment's end.

    Args:
        starts, ends: limits of each row's segment, in which ``keys`` ascend.
    """
    at = 0
    for i in range(len(keys)):
        # If the limit is beyond 64 bits, every key is less than it, or every key is greater.
        over = distance > 0 and keys[i] > _GREATEST - distance
        under = distance < 0 and keys[i] < _LEAST - distance
        wanted = keys[i] if over or under else keys[i] + distance
        at = max(at, starts[i])
        while at < ends[i]:
            passed = keys[at] <= wanted if beyond else keys[at] < wanted
            if under or not (passed or over):
                break
            at += 1
        out[i] = at


@njit(cache=True, nogil=True)
def sums(lows: U64, highs: Ints, valid: Bools, starts: Ints, ends: Ints, out: U64) -> None:
    """Write sums of 128-bit integers over window frames to ``out``, :data:`SUM_WORDS` per row."""
    state = np.zeros((1, SUM_WORDS), np.uint64)
    pieces, count = starts.shape
    first, last = np.zeros(pieces, np.int64), np.zeros(pieces, np.int64)
    for i in range(count):
        for p in range(pieces):
            for j in range(first[p], min(starts[p, i], last[p])):
                if valid[j]:
                    add_decimal(state, 0, 0, lows[j], highs[j], -1)
            first[p] = starts[p, i]
            for j in range(max(last[p], first[p]), ends[p, i]):
                if valid[j]:
                    add_decimal(state, 0, 0, lows[j], highs[j], 1)
            last[p] = max(last[p], ends[p, i])
        out[i] = state[0]


@njit(cache=True, nogil=True)
def float_sums(values: Floats, valid: Bools, starts: Ints, ends: Ints, out: Floats) -> None:
    """Write the sums of doubles over window frames to ``out``. Some doubles can't be subtracted
    exactly (``sums``); when one leaves, its frame's rows are added up again."""
    state = np.zeros((1, FLOAT_WORDS), np.uint64)
    floats = state.view(np.float64)
    pieces, count = starts.shape
    first, last = np.zeros(pieces, np.int64), np.zeros(pieces, np.int64)
    for i in range(count):
        exact = True
        for p in range(pieces):
            for j in range(first[p], min(starts[p, i], last[p])):
                if exact and valid[j]:
                    before = state[0, BESIDE_COUNT]
                    add_float(state, floats, 0, 0, values[j], -1)
                    exact = state[0, BESIDE_COUNT] == before
            first[p] = starts[p, i]
        if not exact:
            state[:] = 0
            last[:] = first
        for p in range(pieces):
            for j in range(max(last[p], first[p]), ends[p, i]):
                if valid[j]:
                    add_float(state, floats, 0, 0, values[j], 1)
            last[p] = max(last[p], ends[p, i])
        out[i] = float_sum(state, floats, 0, 0)


@njit(cache=True, nogil=True)
def extremes(
    words: Ints,
    word: int,
    end: int,
    valid: Bools,
    starts: Ints,
    ends: Ints,
    sign: int,
    texts: Ints,
    data: U8,
    text_ends: Ints,
    out: Ints,
) -> None:
    """Write the row with the least valid value of each window frame to ``out``, or -1; of equal
    values the last row. A row leaves the queue when a later row has no greater value.

    Args:
        word, end: limits of the value in ``words``. ``sign``: 1; -1 for the greatest value.
    """
    queue = np.empty(len(valid), np.int64)
    out[:] = -1
    pieces, count = starts.shape
    for p in range(pieces):
        head = tail = last = 0
        for i in range(count):
            for j in range(max(last, starts[p, i]), ends[p, i]):
                if not valid[j]:
                    continue
                while tail > head:
                    k = queue[tail - 1]
                    if sign * compare(words, k, words, j, word, end, texts, data, text_ends) < 0:
                        break
                    tail -= 1
                queue[tail] = j
                tail += 1
            last = max(last, ends[p, i])
            while head < tail and queue[head] < starts[p, i]:
                head += 1
            if head == tail:
                continue
            k = queue[head]
            if out[i] < 0 or (
                sign * compare(words, out[i], words, k, word, end, texts, data, text_ends) >= 0
            ):
                out[i] = k
