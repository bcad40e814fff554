"""Partial join results as vectors of row references: values are copied only when they are read.

A partial result over labels (aliases) ``{R, S, ...}`` has *row sets*; a row set has, for each
tuple, a table and the number of a row in the table. Labels filled by one probe of a stored join
(MIR) share a row set. Columns are gathered on first use, so a column that only the projection reads
is fetched only for the tuples that reach the projection.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.joins import Label
from anabranch_runtime.columns.arrays import I32, Ints
from anabranch_runtime.index.gather import (
    ColumnPlace,
    ColumnPlaces,
    gather,
    gather_words,
    joined_places,
    pick,
    places,
)
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU


class Table(Protocol):
    """A table with named columns: a segment's reader, or this batch's arrivals."""

    def place(self, name: str) -> ColumnPlace:
        """Return the addresses of the buffers of the table's column ``name``."""


class Tables:
    """Several tables as one; addresses of the tables' columns are cached."""

    __slots__ = ("_joined", "_places", "members")

    def __init__(self, members: Sequence[Table]) -> None:
        self.members = tuple(members)
        self._places: dict[str, ColumnPlaces] = {}
        self._joined: dict[tuple[Tables, ...], Tables] = {}

    def __len__(self) -> int:
        return len(self.members)

    def places(self, name: str) -> ColumnPlaces:
        """Return the addresses of a column in each table."""
        found = self._places.get(name)
        if found is None:
            found = self._places[name] = places([t.place(name) for t in self.members])
        return found

    def join(self, others: tuple[Tables, ...]) -> Tables:
        """Return these tables followed by the tables ``others``; cached for equal arguments."""
        found = self._joined.get(others)
        if found is None:
            members = [*self.members, *(t for other in others for t in other.members)]
            found = self._joined[others] = Tables(members)
        return found


class GrowingTables(Tables):
    """A growing list of tables; addresses of their columns are looked up on first use.

    Row sets over the same list are concatenated without renumbering its tables.
    """

    __slots__ = ("_all",)

    def __init__(self) -> None:
        super().__init__(())
        self._all: list[Table] = []

    def __len__(self) -> int:
        return len(self._all)

    def add(self, table: Table) -> int:
        """Append a table to the list, and return its number."""
        self._all.append(table)
        return len(self._all) - 1

    def places(self, name: str) -> ColumnPlaces:
        """Return the addresses of a column in each table of stored rows so far."""
        found = self._places.get(name)
        known = 0 if found is None else len(found.columns)
        if known < len(self._all):
            more = places([table.place(name) for table in self._all[known:]])
            found = self._places[name] = more if found is None else joined_places(found, more)
        assert found is not None
        return found

    def only(self, which: NDArray[np.integer[Any]]) -> tuple[Tables, NDArray[np.integer[Any]]]:
        """Return the tables numbered ``which`` as a fixed list, and the numbers they have there."""
        used, numbers = np.unique(which, return_inverse=True)
        tables = Tables([self._all[number] for number in used.tolist()])
        return tables, numbers.astype(narrow(len(used)))


@dataclass(frozen=True, slots=True)
class RowSet:
    """Rows of several tables: row ``rows[i]`` of table ``which[i]`` (None: of the only table)."""

    tables: Tables
    which: NDArray[np.integer[Any]] | None
    rows: I32

    def take(self, positions: I32) -> RowSet:
        """Return references to the rows at ``positions``, in that order."""
        which = None if self.which is None else pick(self.which, positions)
        return RowSet(self.tables, which, pick(self.rows, positions))

    def cut(self, first: int, last: int) -> RowSet:
        """Return the rows from ``first`` to before ``last``, without a copy."""
        which = None if self.which is None else self.which[first:last]
        return RowSet(self.tables, which, self.rows[first:last])

    def settled(self) -> RowSet:
        """Return the same rows with a fixed list of tables."""
        if not isinstance(self.tables, GrowingTables):
            return self
        assert self.which is not None
        tables, which = self.tables.only(self.which)
        return RowSet(tables, which, self.rows)

    def column(self, name: str) -> pa.Array:
        """Gather a column of the referenced rows."""
        return gather(self.tables.places(name), self.which, self.rows)

    def int64(self, name: str) -> Ints:
        """Gather a column of arrival numbers (``#sigma``) or of event times (``#tau``)."""
        return gather_words(self.tables.places(name), self.which, self.rows)


def concat_rows(sets: Sequence[RowSet]) -> RowSet:
    """Concatenate sets of references to stored rows."""
    if len(sets) == 1:
        return sets[0]
    first = sets[0].tables
    if isinstance(first, GrowingTables) and all(s.tables is first for s in sets):
        numbers = [s.which for s in sets if s.which is not None]
        return RowSet(first, np.concatenate(numbers), np.concatenate([s.rows for s in sets]))
    sets = [s.settled() for s in sets]
    kind = narrow(sum(len(s.tables) for s in sets))
    which, base = [], 0
    for one in sets:
        if one.which is None:
            which.append(np.full(len(one.rows), base, kind))
        else:
            # The sum may exceed the integer type that suffices for a part's own tables.
            which.append(np.add(one.which, base, dtype=kind))
        base += len(one.tables)
    tables = sets[0].tables.join(tuple(s.tables for s in sets[1:]))
    return RowSet(tables, np.concatenate(which), np.concatenate([s.rows for s in sets]))


def narrow(tables: int) -> type[np.int16] | type[np.int32]:
    """Return the smallest integer type in which ``tables`` tables can be numbered."""
    return np.int16 if tables < 1 << 15 else np.int32


@dataclass(slots=True)
class Partial:
    """A partial result of a join: ``length`` tuples; each label's rows are in one of the row sets.

    Attributes:
        sets: the row sets.
        place: label -> (index of its row set, prefix of its columns in rows of a stored join).
        start: the label of the arriving tuples from which this result was computed.
        origins: each tuple's position in the partial result of the last call of :meth:`numbered`;
            None: there was no call.
    """

    length: int
    sets: tuple[RowSet, ...]
    place: dict[Label, tuple[int, str]]
    start: Label
    origins: I32 | None = None
    #: Cache of values that probes have computed from these tuples, such as key vectors.
    lookups: dict[Hashable, Any] = field(default_factory=dict)
    _cache: dict[tuple[str, str], Any] = field(default_factory=dict)

    def column(self, label: Label, name: str) -> pa.Array:
        """Gather a column of the partial result's alias ``label``."""
        if name == SIGMA:
            return pa.array(self.sigma(label))
        key = (label, name)
        found = self._cache.get(key)
        if found is None:
            at, member = self.place[label]
            found = self.sets[at].column(f"{member}.{name}" if member else name)
            self._cache[key] = found
        return found

    def sigma(self, label: Label) -> Ints:
        """Return the arrival numbers (sigma) of ``label``'s tuples."""
        return self._int64(label, SIGMA)

    def tau(self, label: Label) -> Ints:
        """Return the event times of ``label``'s tuples, in microseconds."""
        return self._int64(label, TAU)

    def batch(self, label: Label) -> Ints:
        """Return the batches in which ``label``'s tuples arrived."""
        return self.sigma(label) >> OFFSET_BITS

    def _int64(self, label: Label, name: str) -> Ints:
        key = (label, name)
        found: Ints | None = self._cache.get(key)
        if found is None:
            at, member = self.place[label]
            found = self.sets[at].int64(f"{name}:{member}" if member else name)
            self._cache[key] = found
        return found

    def take(self, positions: I32) -> Partial:
        """Return the partial result with only the tuples at ``positions``, in their order."""
        return Partial(
            len(positions),
            tuple(s.take(positions) for s in self.sets),
            self.place,
            self.start,
            self._origins(positions),
        )

    def numbered(self) -> Partial:
        """Return the same tuples, whose positions are recorded as ``origins``."""
        return replace(self, origins=np.arange(self.length, dtype=np.int32))

    def _origins(self, positions: I32) -> I32 | None:
        return None if self.origins is None else pick(self.origins, positions)

    def cut(self, first: int, last: int) -> Partial:
        """Return the tuples from ``first`` to before ``last`` (or the end), without a copy; if
        these are all tuples, with their caches."""
        if first == 0 and last >= self.length:
            return self
        last = min(last, self.length)
        return Partial(
            last - first, tuple(s.cut(first, last) for s in self.sets), self.place, self.start
        )

    def where(self, mask: NDArray[np.bool_] | None) -> Partial:
        """Filter: return the tuples for which ``mask`` is true (None: all tuples)."""
        if mask is None or bool(mask.all()):
            return self
        return self.take(np.flatnonzero(mask).astype(np.int32))

    def extend(self, positions: I32, rows: RowSet, place: dict[Label, str]) -> Partial:
        """Join tuple ``positions[i]`` with the row ``rows[i]``, for all ``i``. The rows supply the
        labels in ``place`` (label -> prefix of its columns)."""
        sets = (*(s.take(positions) for s in self.sets), rows)
        at = len(self.sets)
        return Partial(
            len(positions),
            sets,
            {**self.place, **{label: (at, member) for label, member in place.items()}},
            self.start,
            self._origins(positions),
        )


def concat_partials(parts: Sequence[Partial]) -> Partial:
    """Concatenate partial results over the same labels.

    They may group labels into row sets differently: labels from one stored join share a row set,
    labels from base stores don't. Unless they agree, every label gets its own row set.
    """
    first = parts[0]
    if len(parts) == 1:
        return first
    if all(p.place == first.place for p in parts):
        sets = tuple(concat_rows(column) for column in zip(*(p.sets for p in parts), strict=True))
        return Partial(sum(p.length for p in parts), sets, first.place, first.start)
    labels = sorted(first.place)
    sets = tuple(concat_rows([_own_rows(p, label) for p in parts]) for label in labels)
    place = {label: (at, "") for at, label in enumerate(labels)}
    return Partial(sum(p.length for p in parts), sets, place, first.start)


def shape(partial: Partial) -> Hashable | None:
    """Return a key: :func:`concat_alike` joins partial results with equal keys; None: never."""
    if not all(isinstance(rows.tables, GrowingTables) for rows in partial.sets):
        return None
    return frozenset(
        (label, member, id(partial.sets[at].tables))
        for label, (at, member) in partial.place.items()
    )


def concat_alike(parts: Sequence[Partial]) -> Partial:
    """Concatenate partial results of equal :func:`shape`, even with row sets in other orders."""
    first = parts[0]
    if len(parts) == 1:
        return first
    one_of = {at: label for label, (at, _) in first.place.items()}
    sets = tuple(
        concat_rows([part.sets[part.place[one_of[at]][0]] for part in parts])
        for at in range(len(first.sets))
    )
    return Partial(sum(part.length for part in parts), sets, first.place, first.start)


def _own_rows(partial: Partial, label: Label) -> RowSet:
    at, member = partial.place[label]
    rows = partial.sets[at].settled()
    if not member:
        return rows
    renamed = Tables([Renamed(t, member) for t in rows.tables.members])
    return RowSet(renamed, rows.which, rows.rows)


@dataclass(frozen=True, slots=True)
class Renamed:
    """Table of a stored join, read as rows of one member, with the stream's column names."""

    table: Table
    member: str

    def place(self, name: str) -> ColumnPlace:
        """Return the addresses of a stream column's buffers."""
        if name in (SIGMA, TAU):
            return self.table.place(f"{name}:{self.member}")
        return self.table.place(f"{self.member}.{name}")


def fetcher(partial: Partial) -> Callable[[Column], pa.Array]:
    """Return a reader of ``partial``'s columns for expressions over several labels."""
    return lambda column: partial.column(Label(column.alias), column.name)
