"""Predicate sets by arrival number: a stored row's set, found without the row's columns.

A row that arrived is stored in many tables: with each row that it has been joined with, and again
in each merged segment. Its set of predicates is computed once, and looked up for the others.
"""

from __future__ import annotations

from dataclasses import dataclass
from weakref import WeakKeyDictionary

import numpy as np
from numba import njit

from anabranch_runtime.columns.arrays import I32, Ints
from anabranch_runtime.index.words import load64
from anabranch_runtime.storage.segment import OFFSET_BITS

#: Number of arrivals above which the earlier half of them is forgotten.
MOST = 1 << 20
_FIRST = 1 << 10
#: Value of a row without a set; below it, the value of row ``k`` in need of a set is NONE - 1 - k.
NONE = -1
#: Columns of the table: arrival number (-1: the slot is free), and value.
_ARRIVAL, _VALUE = range(2)
_FACTOR, _SHIFT = np.uint64(0x9E3779B97F4A7C15), np.uint64(32)


@dataclass(frozen=True, slots=True)
class Moment:
    """A batch of a pipeline's process, in which rows that arrived in earlier batches are final:
    the batch itself may be repeated with other rows, and a start may take batches back.

    Attributes:
        start: name of the process's start. ``batch``: number of the batch.
    """

    start: str
    batch: int

    @property
    def arrival(self) -> int:
        """The first arrival number of the batch."""
        return self.batch << OFFSET_BITS


class ArrivalSets:
    """Arrival number -> number of the row's predicate set, and its version: the number of
    predicates that were tested.

    Attributes:
        tables: base tables whose rows have been added -> the version.
    """

    def __init__(self) -> None:
        self.tables: WeakKeyDictionary[object, int] = WeakKeyDictionary()
        self._table: Ints = np.full((_FIRST, 2), NONE, np.int64)
        self._used = 0

    def __len__(self) -> int:
        return self._used

    def of(self, arrivals: Ints, version: int) -> tuple[I32, I32, Ints]:
        """Return rows' sets of a version, or -1 minus the number of a row in need of one.

        Returns:
            The sets; the positions of rows in need of a set, one per arrival number; their former
            values, packed as in :meth:`add`. :meth:`add` is to be called with their sets.
        """
        sets, first = np.empty(len(arrivals), np.int32), np.empty(len(arrivals), np.int32)
        former = np.empty(len(arrivals), np.int64)
        # Arrow's columns are read-only arrays, which are other types for kernels.
        given, done, count = arrivals.ctypes.data, 0, 0
        while done < len(arrivals):
            done, count, self._used = _look_up(
                given, self._table, version, (done, count, self._used), sets, first, former
            )
            if done < len(arrivals):
                self._make_room()
        return sets, first[:count].copy(), former[:count].copy()

    def add(self, arrivals: Ints, values: Ints) -> None:
        """Replace the values of rows: version << 32 | set; :data:`NONE`: the row has no set."""
        done = 0
        while done < len(arrivals):
            done, self._used = _enter(arrivals, values, self._table, done, self._used)
            if done < len(arrivals):
                self._make_room()

    def _make_room(self) -> None:
        known, length = self._table[self._table[:, _ARRIVAL] >= 0], 2 * len(self._table)
        if self._used >= MOST:
            # The rows that arrived first expire first.
            known = known[np.argpartition(known[:, _ARRIVAL], len(known) // 2)[len(known) // 2 :]]
            length = len(self._table)
        self._table = np.full((length, 2), NONE, np.int64)
        arrivals, values = known.T.copy()
        _, self._used = _enter(arrivals, values, self._table, 0, 0)


@njit(cache=True, nogil=True)
def _slot_of(arrival, table):  # type: ignore[no-untyped-def]
    """Return the slot of an arrival number, or a free slot."""
    mask = len(table) - 1
    slot = np.int64((np.uint64(arrival) * _FACTOR) >> _SHIFT) & mask
    while table[slot, _ARRIVAL] != arrival and table[slot, _ARRIVAL] >= 0:
        slot = (slot + 1) & mask
    return slot


@njit(cache=True, nogil=True)
def _look_up(arrivals, table, version, begun, sets, first, former):  # type: ignore[no-untyped-def]
    """Find sets of a version, and enter rows in need of one, until the table is half full.

    Args:
        arrivals: address of the arrival numbers.
        begun: number of finished rows, of rows in need of a set, and of used slots.

    Returns:
        Numbers as in ``begun``, after as many rows as the table has room for.
    """
    done, count, used = begun
    last, found = np.int64(-1), np.int32(0)
    for i in range(done, len(sets)):
        arrival = np.int64(load64(arrivals, i))
        # Joined rows with the same member are often neighbours.
        if arrival != last:
            slot = _slot_of(arrival, table)
            if table[slot, _ARRIVAL] < 0:
                if 2 * used >= len(table):
                    return i, count, used
                table[slot, _ARRIVAL] = arrival
                used += 1
            value = table[slot, _VALUE]
            if value >= 0 and value >> 32 == version:
                found = np.int32(value & 0xFFFFFFFF)
            elif value < NONE:
                found = np.int32(value - NONE)
            else:
                first[count], former[count] = i, value
                count += 1
                table[slot, _VALUE] = NONE - count
                found = np.int32(-count)
            last = arrival
        sets[i] = found
    return len(sets), count, used


@njit(cache=True, nogil=True)
def _enter(arrivals, values, table, done, used):  # type: ignore[no-untyped-def]
    """Enter values from position ``done`` on, until the table is half full; return the position
    reached, and the number of used slots."""
    for i in range(done, len(arrivals)):
        slot = _slot_of(arrivals[i], table)
        if table[slot, _ARRIVAL] < 0:
            if 2 * used >= len(table):
                return i, used
            table[slot, _ARRIVAL] = arrivals[i]
            used += 1
        table[slot, _VALUE] = values[i]
    return len(arrivals), used


@njit(cache=True, nogil=True)
def complete(sets: I32, found: I32) -> None:
    """Replace each negative number -1 - k in ``sets`` by ``found[k]``."""
    for i in range(len(sets)):
        if sets[i] < 0:
            sets[i] = found[-1 - sets[i]]


def warm() -> None:
    """Compile the kernels of this module, or load them from Numba's cache."""
    made, arrivals = ArrivalSets(), np.zeros(1, np.int64)
    sets, first, former = made.of(arrivals, 0)
    made.add(arrivals, former)
    complete(sets, first)
