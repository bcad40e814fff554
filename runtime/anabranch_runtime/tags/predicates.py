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
from string import digits
from threading import Lock, RLock
from typing import Protocol
from weakref import WeakKeyDictionary, WeakValueDictionary

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Column, Expr, columns
from anabranch_contract.queries.joins import ARRIVAL
from anabranch_runtime.columns.arrays import I32, U64, Ints, conform, fixed
from anabranch_runtime.expressions.evaluate import Fetch, filter_mask
from anabranch_runtime.expressions.failures import EVALUATION
from anabranch_runtime.index.gather import DerivedColumn
from anabranch_runtime.index.predicate_sets import ALL, PredicateSets
from anabranch_runtime.tags.arrival_sets import MOST, NONE, ArrivalSets, Moment, complete
from anabranch_runtime.tags.axes import Axis, condition_on_column, packed, words_for
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
MOST_BYTES = 512 << 20
#: Number of new combinations of codes whose sets are computed together.
_PIECE = 1 << 12
#: Number of combinations of codes whose sets are cached.
_COMBINATIONS = 1 << 16
#: Number of kinds of tables, by the columns that they lack, whose sets by arrival are kept.
_KINDS = 4
#: Number of new predicates above which rows are tested by an index of these predicates.
_MANY = 8


class BaseTables:
    """Base tables with predicate sets; successive indexes of a stream share them."""

    def __init__(self) -> None:
        self._lock = Lock()
        #: Table -> name of the start (``Moment.start``) that read it last.
        self._starts: WeakKeyDictionary[TaggedTable, str] = WeakKeyDictionary()

    def add(self, table: TaggedTable, start: str) -> None:
        """Add a table that a start reads."""
        with self._lock:
            self._starts[table] = start

    def of(self, start: str) -> list[TaggedTable]:
        """Return the tables that a start reads."""
        with self._lock:
            return [table for table, one in self._starts.items() if one == start]


class PredicateIndex:
    """The predicates over one stream, and the predicate sets of its rows.

    Args:
        bases: base tables of an earlier index over the same columns; tables are added.

    Attributes:
        identified: whether an arrival number identifies a row. In a stream with changes, a row and
            the delete of the row that it replaces have the same one.
        met: the sets of predicates that rows satisfy.
        overflowed: whether some rows may have the set :data:`UNKNOWN`.
    """

    def __init__(self, *, identified: bool = True, bases: BaseTables | None = None) -> None:
        self.identified = identified
        self._bases = BaseTables() if bases is None else bases
        self._lock = RLock()
        self._numbers: dict[Conditions, int] = {}
        #: Columns that predicates read.
        self._columns: set[Column] = set()
        self._axes: dict[Column, Axis] = {}
        #: Condition that no axis can test -> the predicates that contain it.
        self._others: dict[Expr, list[int]] = defaultdict(list)
        self.met = PredicateSets()
        self.overflowed = False
        #: Sorted combinations of codes whose predicate sets are cached, and these sets.
        self._codes: tuple[Ints, I32] = np.zeros(0, np.int64), np.zeros(0, np.int32)
        #: First and end of the numbers of newer predicates, and an index of these predicates.
        self._newer: tuple[tuple[int, int], PredicateIndex] | None = None
        #: Start, and columns that tables lack -> sets by arrival number; the last used ones.
        self._by_columns: dict[tuple[str, frozenset[str]], ArrivalSets] = {}
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
            self._columns.update(columns(condition))
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

    def prepare(
        self, table: TaggedTable, name: str, prefix: str, moment: Moment | None = None
    ) -> None:
        """Add the column ``name``, with its rows' predicate sets, to ``table``, or update it.

        Args:
            prefix: prefix of the names of the stream's columns in the table.
            moment: present batch, before which arrivals are final; None: no row is final.
        """
        with self._lock:
            made, arrivals = table.derived.get(name), None
            try:
                # Base rows that have sets of an earlier version are all different.
                if self.identified and (prefix or made is None):
                    arrivals = _arrivals(table, prefix)
                if moment is not None and arrivals is not None:
                    known = self._known(moment.start, _rows(table, prefix))
                    if prefix:
                        self._add_bases(known, name.removeprefix(prefix), moment)
                    try:
                        sets = self._by_arrival(known, table, prefix, arrivals, moment, made)
                    except BaseException:
                        # Rows in need of sets have been entered.
                        self._by_columns.clear()
                        raise
                    if made is not None:
                        made.values[:], made.version = sets, len(self._numbers)
                elif made is None:
                    sets = self.sets(_rows(table, prefix), table.rows)
                else:
                    made.version = self.extend(made.values, made.version, _rows(table, prefix))
                if made is None:
                    _drop_former(table, name)
                    table.derived[name] = DerivedColumn(sets, len(self._numbers))
                if not prefix and moment is not None:
                    self._bases.add(table, moment.start)
            except EVALUATION:
                # A column has another type: these rows' predicates are unknown.
                self.overflowed = True
                made = table.derived.setdefault(name, DerivedColumn(_unknown(table.rows), 0))
                made.values[:], made.version = UNKNOWN, len(self._numbers)

    def _by_arrival(
        self,
        known: ArrivalSets,
        table: TaggedTable,
        prefix: str,
        arrivals: Ints,
        moment: Moment,
        made: DerivedColumn | None,
    ) -> I32:
        """Return the predicate sets of a table's rows: computed once per arrival number.

        Args:
            made: sets of an earlier version, which rows have that no other table has.
        """
        count = len(self._numbers)
        sets, first, former = known.of(arrivals, count)
        if len(first):
            found, versions = former.astype(np.int32), former >> 32
            if made is not None:
                new = versions < 0
                found[new], versions[new] = made.values[first[new]], made.version
            at = np.flatnonzero(versions < 0)
            if len(at):
                found[at] = self.sets(_rows(table, prefix, first[at]), len(at))
            at = np.flatnonzero(versions >= 0)
            if len(at):
                part = found[at]
                self.extend(part, int(versions[at].min()), _rows(table, prefix, first[at]))
                found[at] = part
            numbers = arrivals[first]
            values = count << 32 | found.astype(np.int64)
            known.add(numbers, np.where(numbers < moment.arrival, values, NONE))
            complete(sets, found)
        return sets

    def _known(self, start: str, fetch: Fetch) -> ArrivalSets:
        """Return the sets by arrival number of tables with the columns that ``fetch`` has."""
        key = start, frozenset(c.name for c in self._columns if not _has_columns(c, fetch))
        found = self._by_columns.pop(key, None)
        if found is None:
            found = ArrivalSets()
        self._by_columns[key] = found
        if len(self._by_columns) > _KINDS:
            del self._by_columns[next(iter(self._by_columns))]
        return found

    def _add_bases(self, known: ArrivalSets, name: str, moment: Moment) -> None:
        """Add the present sets of base rows to ``known``: reading their columns in order takes less
        time than reading a joined row per member.

        Args:
            name: the base tables' column with sets.
        """
        count = len(self._numbers)
        tables = self._bases.of(moment.start)
        if sum(table.rows for table in tables) > MOST // 2:
            return
        for table in tables:
            if known.tables.get(table) == count:
                continue
            arrivals, known.tables[table] = _arrivals(table, ""), count
            if arrivals is None or self._known(moment.start, _rows(table, "")) is not known:
                continue
            made = table.derived.get(name)
            if made is None or made.version < count:
                self.prepare(table, name, "", moment)
            final = arrivals < moment.arrival
            sets = table.derived[name].values[final]
            known.add(arrivals[final], count << 32 | sets.astype(np.int64))
            if not final.all():
                del known.tables[table]

    def extend(self, sets: I32, known: int, fetch: Fetch) -> int:
        """Update predicate sets that were computed for the first ``known`` predicates.

        Returns:
            Number of predicates for which ``sets`` are computed now.
        """
        with self._lock:
            count = len(self._numbers)
            if count - known > _MANY:
                self._add_newer(sets, known, fetch)
                return count
            for conditions, number in list(self._numbers.items())[known:]:
                tested = [one for one in conditions if _has_columns(one, fetch)]
                mask = filter_mask(tested, fetch, len(sets))
                rows = np.arange(len(sets)) if mask is None else np.flatnonzero(mask)
                self._add_to(sets, rows, number)
            return count

    def _add_newer(self, sets: I32, known: int, fetch: Fetch) -> None:
        """Add the predicates from number ``known`` on to the rows' predicate sets, in place."""
        count = len(self._numbers)
        if self._newer is None or self._newer[0] != (known, count):
            index = PredicateIndex()
            for conditions in list(self._numbers)[known:]:
                index.number(conditions)
            self._newer = (known, count), index
        index = self._newer[1]
        own = index.sets(fetch, len(sets))
        self.overflowed |= index.overflowed
        every = index.met.bits(np.arange(len(index.met)), words_for(len(index)))
        rows = np.flatnonzero(np.asarray(every.any(axis=1))[own])
        pairs, _, inverse = _distinct(sets[rows].astype(np.int64) << 32 | own[rows])
        found = np.empty(len(pairs), np.int32)
        for begin in range(0, len(pairs), _PIECE):
            piece = pairs[begin : begin + _PIECE]
            old = piece >> 32
            held = np.zeros((len(piece), 64 * words_for(count)), np.bool_)
            added = every[piece & 0xFFFFFFFF].view(np.uint8)
            held[:, known:count] = np.unpackbits(added, axis=1, bitorder="little")[:, : len(index)]
            new = self._numbered(self.met.bits(old, words_for(count)) | packed(held))
            new[old == UNKNOWN] = UNKNOWN
            found[begin : begin + _PIECE] = new
        sets[rows] = found[inverse]

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
                key = _distinct(key)[2].astype(np.int64)
                room = 1 << 62
            key = key * axis.size + codes
            room = min(room * axis.size, 1 << 62)
        keys, first, inverse = _distinct(key)
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
                known, numbers, new = known[:0], numbers[:0], np.arange(len(keys))
            new = new[np.argsort(keys[new])]
            at = np.searchsorted(known, keys[new])
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


def _drop_former(table: TaggedTable, name: str) -> None:
    """Drop a table's columns with sets of former indexes, whose names differ from ``name`` by a
    number; but not the last one, which another task may still be using."""
    stem = name.rstrip(digits)
    for former in [one for one in list(table.derived) if one.rstrip(digits) == stem][:-1]:
        table.derived.pop(former, None)


def _arrivals(table: TaggedTable, prefix: str) -> Ints | None:
    """Return the rows' arrival numbers in a member's stream (``prefix``), if the table has them."""
    try:
        column = table.column(f"{ARRIVAL}:{prefix.removesuffix('.')}" if prefix else ARRIVAL)
    except KeyError:
        return None
    found: Ints = fixed(column, np.int64)
    return found


def _rows(table: TaggedTable, prefix: str, rows: I32 | None = None) -> Fetch:
    """Return a function that fetches a column of some rows of a table (None: of all)."""
    taken: dict[str, pa.Array] = {}

    def fetch(column: Column) -> pa.Array:
        found = taken.get(column.name)
        if found is None:
            found = table.column(f"{prefix}{column.name}")
            if rows is not None and len(rows) < table.rows:
                found = found.take(pa.array(rows))
            taken[column.name] = found
        return found

    return fetch


def _distinct(keys: Ints) -> tuple[Ints, Ints, I32]:
    """Return the distinct ``keys``, the index of a row with each, and per row, that of its key."""
    encoded = pa.array(keys).dictionary_encode()
    inverse: I32 = encoded.indices.to_numpy()
    found: Ints = encoded.dictionary.to_numpy()
    first = np.empty(len(found), np.int64)
    first[inverse] = np.arange(len(keys))
    return found, first, inverse


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
