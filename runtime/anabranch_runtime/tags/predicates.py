"""Predicate index: the set of predicates that each row of a stream satisfies.

A predicate is a conjunction of conditions that can't raise an error. All predicates of a stream are
evaluated together. Conditions that compare a column with constants are tested once per code of the
column (:mod:`~anabranch_runtime.tags.axes`), others once per distinct condition. Rows with equal
codes have equal sets. A set is stored once, and rows have its number.

A store of joined rows has only those columns that the queries over it need. Conditions on other
columns count as holding for its rows: no query that reads these rows has such a condition.

Predicates are added while the index is in use, and never removed: a predicate that no query has any
more costs one bit per set. Rows' set numbers can be updated in place (:meth:`extend`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from threading import RLock
from typing import Protocol
from weakref import WeakValueDictionary

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Column, Expr, columns
from anabranch_runtime.columns.arrays import I32, U64, Ints, conform
from anabranch_runtime.expressions.evaluate import Fetch, filter_mask
from anabranch_runtime.expressions.failures import EVALUATION
from anabranch_runtime.index.gather import DerivedColumn
from anabranch_runtime.index.predicate_sets import ALL, PredicateSets
from anabranch_runtime.tags.axes import Axis, condition_on_column, words_for
from anabranch_runtime.tags.choices import TranslatedSets


class TaggedTable(Protocol):
    """A table whose rows can have predicate sets: a segment, or arrivals of a batch."""

    @property
    def derived(self) -> dict[str, DerivedColumn]:
        """Columns computed from the tagged table's rows, by name."""

    @property
    def rows(self) -> int:
        """Number of rows of the tagged table."""

    def column(self, name: str) -> pa.Array:
        """Return the column ``name`` of the table with tagged rows."""


#: Conditions that form a predicate: expressions over one relation's columns.
Conditions = tuple[Expr, ...]
#: Number of the set for rows whose predicates are unknown: the set of all predicates.
UNKNOWN = ALL
#: Maximum bytes of an index's sets; beyond them, rows with new sets get :data:`UNKNOWN`.
MOST_BYTES = 128 << 20
#: Number of new combinations of codes whose sets are computed together.
_PIECE = 1 << 12
#: Number of combinations of codes whose sets are cached.
_COMBINATIONS = 1 << 16
#: Number of new predicates above which rows' sets are computed again from all predicates.
_MANY = 16


class PredicateIndex:
    """The predicates over one stream, and the predicate sets of its rows.

    Attributes:
        met: the sets of predicates that rows satisfy.
        overflowed: whether some rows may have the set :data:`UNKNOWN`.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._numbers: dict[Conditions, int] = {}
        self._axes: dict[Column, Axis] = {}
        #: Condition that no axis can test -> the predicates that contain it.
        self._others: dict[Expr, list[int]] = defaultdict(list)
        self.met = PredicateSets()
        self.overflowed = False
        #: Sorted combinations of codes whose predicate sets are cached, and these sets.
        self._codes: tuple[Ints, I32] = np.zeros(0, np.int64), np.zeros(0, np.int32)
        #: Predicates of choices -> translation of the sets into these choices, kept while in use.
        self._translated = WeakValueDictionary[bytes, TranslatedSets]()

    def __len__(self) -> int:
        return len(self._numbers)

    def number(self, conditions: Conditions) -> int:
        """Return the number of a predicate, which is added if it is new."""
        with self._lock:
            found = self._numbers.get(conditions)
            if found is None:
                found = self._numbers[conditions] = len(self._numbers)
                self._add(conditions, found)
            return found

    def translated(self, predicates: I32) -> TranslatedSets:
        """Return the translation of each set of predicates into the choices whose predicate it has.

        Args:
            predicates: number of each choice's predicate; -1: the choice has none.
        """
        with self._lock:
            key = predicates.tobytes()
            found = self._translated.get(key)
            if found is None:
                found = self._translated[key] = TranslatedSets(self.met, predicates)
            return found

    def _add(self, conditions: Conditions, number: int) -> None:
        for condition in conditions:
            test = condition_on_column(condition)
            if test is None:
                self._others[condition].append(number)
                continue
            column, op, values = test
            if column not in self._axes:
                self._axes[column] = Axis(column)
            self._axes[column].add(number, op, values)
        self._codes = self._codes[0][:0], self._codes[1][:0]

    def sets(self, fetch: Fetch, rows: int) -> I32:
        """Return the number of each row's set of predicates. ``fetch`` raises ``KeyError`` for
        columns that the rows lack."""
        with self._lock:
            found = self._by_codes(fetch, rows)
            if self._others:
                for begin in range(0, rows, _PIECE):
                    piece = found[begin : begin + _PIECE]
                    piece[:] = self._by_others(piece, _slices(fetch, begin, len(piece)))
            return found

    def prepare(self, table: TaggedTable, name: str, prefix: str) -> None:
        """Add the column ``name``, with its rows' predicate sets, to ``table``, or update it.

        Args:
            prefix: prefix of the names of the stream's columns in the table.
        """

        def fetch(column: Column) -> pa.Array:
            return table.column(f"{prefix}{column.name}")

        with self._lock:
            made = table.derived.get(name)
            try:
                if made is None:
                    sets = self.sets(fetch, table.rows)
                    table.derived[name] = DerivedColumn(sets, len(self._numbers))
                else:
                    made.version = self.extend(made.values, made.version, fetch)
            except EVALUATION:
                # A column has another type: these rows' predicates are unknown.
                self.overflowed = True
                made = table.derived.setdefault(name, DerivedColumn(_unknown(table.rows), 0))
                made.values[:], made.version = UNKNOWN, len(self._numbers)

    def extend(self, sets: I32, known: int, fetch: Fetch) -> int:
        """Update predicate sets that were computed for the first ``known`` predicates.

        Returns:
            Number of predicates for which ``sets`` are computed now.
        """
        with self._lock:
            count = len(self._numbers)
            if count - known > _MANY:
                sets[:] = self.sets(fetch, len(sets))
                return count
            for conditions, number in list(self._numbers.items())[known:]:
                tested = [one for one in conditions if _has_columns(one, fetch)]
                mask = filter_mask(tested, fetch, len(sets))
                rows = np.arange(len(sets)) if mask is None else np.flatnonzero(mask)
                self._add_to(sets, rows, number)
            return count

    def _by_codes(self, fetch: Fetch, rows: int) -> I32:
        """Return the predicate sets of rows, as found by the conditions that axes test."""
        key, room, by_axis = np.zeros(rows, np.int64), 1, list[Ints]()
        for axis in self._axes.values():
            try:
                values = fetch(axis.column)
            except KeyError:
                codes = np.full(rows, axis.absent)
            else:
                codes = axis.codes(conform(values, axis.column.type))
            by_axis.append(codes)
            if room * axis.size >= 1 << 62:
                # Combinations are numbered for these rows only, so that their sets can't be cached.
                _, key = np.unique(key, return_inverse=True)
                room = 1 << 62
            key = key * axis.size + codes
            room = min(room * axis.size, 1 << 62)
        keys, first, inverse = np.unique(key, return_index=True, return_inverse=True)
        lasting = room < 1 << 62
        known, numbers = self._codes if lasting else (keys[:0], self._codes[1][:0])
        at = np.searchsorted(known, keys)
        inside = np.minimum(at, max(len(known) - 1, 0))
        met = known[inside] == keys if len(known) else np.zeros(len(keys), np.bool_)
        found = np.zeros(len(keys), np.int32)
        found[met] = numbers[inside[met]]
        new = np.flatnonzero(~met)
        for begin in range(0, len(new), _PIECE):
            piece = new[begin : begin + _PIECE]
            found[piece] = self._numbered(
                self._held([c[first[piece]] for c in by_axis], len(piece))
            )
        if lasting and len(new):
            if len(known) + len(new) > _COMBINATIONS:
                self._codes = keys, found
            else:
                at = at[new]
                self._codes = np.insert(known, at, keys[new]), np.insert(numbers, at, found[new])
        return found[inverse]

    def _by_others(self, sets: I32, fetch: Fetch) -> I32:
        """Return ``sets``, found by axes, without predicates whose other conditions fail. Only
        final sets get numbers, since one set per condition and row would fill the index."""
        bits = np.ascontiguousarray(self.met.bits(sets, words_for(len(self._numbers))).T)
        for condition, predicates in self._others.items():
            if not _has_columns(condition, fetch):
                continue
            mask = filter_mask((condition,), fetch, len(sets))
            if mask is None or mask.all():
                continue
            lacking = ~mask
            for number in predicates:
                bits[number >> 6, lacking] &= ~(np.uint64(1) << np.uint64(number & 63))
        found = self._numbered(np.ascontiguousarray(bits.T))
        found[sets == UNKNOWN] = UNKNOWN
        return found

    def _held(self, by_axis: Sequence[Ints], rows: int) -> U64:
        """Return the bits of the predicates that hold for rows, given the rows' codes by axis."""
        words = words_for(len(self._numbers))
        held = np.full((rows, words), ~np.uint64(0), np.uint64)
        for axis, codes in zip(self._axes.values(), by_axis, strict=True):
            held &= axis.held(codes, len(self._numbers))
        rest = len(self._numbers) % 64
        if rest:
            held[:, -1] &= np.uint64((1 << rest) - 1)
        return held

    def _add_to(self, sets: I32, rows: Ints, number: int) -> None:
        """Add a predicate to the predicate sets of ``rows``, in place."""
        if not len(rows):
            return
        old, inverse = np.unique(sets[rows], return_inverse=True)
        bits = self.met.bits(old, words_for(len(self._numbers)))
        bits[:, number >> 6] |= np.uint64(1) << np.uint64(number & 63)
        new = self._numbered(bits)
        new[old == UNKNOWN] = UNKNOWN
        sets[rows] = new[inverse]

    def _numbered(self, bits: U64) -> I32:
        """Return the number of each predicate set; new sets get numbers while there is room."""
        found = self.met.numbered(bits, MOST_BYTES)
        self.overflowed |= self.met.size >= MOST_BYTES
        return found


def _has_columns(condition: Expr, fetch: Fetch) -> bool:
    """Whether ``fetch`` has all columns of a condition."""
    try:
        for column in columns(condition):
            fetch(column)
    except KeyError:
        return False
    return True


def _slices(fetch: Fetch, begin: int, length: int) -> Fetch:
    """Return a function that fetches a column of the rows from ``begin`` on only."""
    known: dict[Column, pa.Array] = {}

    def part(column: Column) -> pa.Array:
        found = known.get(column)
        if found is None:
            found = known[column] = fetch(column).slice(begin, length)
        return found

    return part


def _unknown(rows: int) -> I32:
    return np.full(rows, UNKNOWN, np.int32)
