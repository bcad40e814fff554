"""Partial results as vectors of row references: nothing is copied until somebody reads it.

A partial result over labels ``{R, S, ...}`` is, per *row set*, which table a row comes from and
its number there. Labels that were filled by one probe of an MIR share a row set. Columns are
gathered on first use, so a column that only the projection reads is fetched only for the tuples
that reach the projection.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import pyarrow as pa

from anabranch_runtime.state.segment import OFFSET_BITS, SIGMA, TAU

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from anabranch_planner.model import Label

    Ints = NDArray[np.int64]


class Table(Protocol):
    """Something with named columns: a segment reader, or this batch's arrivals."""

    def column(self, name: str) -> pa.Array:
        """A column."""

    def int64(self, name: str) -> Ints:
        """A ``#sigma`` or ``#tau`` column."""


@dataclass(slots=True)
class RowSet:
    """Rows of several tables: ``tables[which[i]]``, row ``rows[i]`` (``which`` None: the first).

    Never changed once made, but for what it remembers.
    """

    tables: tuple[Table, ...]
    which: NDArray[np.integer[Any]] | None
    rows: Ints
    _runs: tuple[Ints | None, list[tuple[int, Ints]]] | None = None

    def take(self, positions: Ints) -> RowSet:
        """The rows at ``positions``, in that order."""
        which = None if self.which is None else self.which[positions]
        return RowSet(self.tables, which, self.rows[positions])

    def column(self, name: str) -> pa.Array:
        """Gather a column."""
        order, runs = self._by_table()
        pieces = [self.tables[t].column(name).take(pa.array(rows)) for t, rows in runs]
        gathered = pieces[0] if len(pieces) == 1 else pa.concat_arrays(pieces)
        return gathered if order is None else gathered.take(pa.array(_inverse(order)))

    def int64(self, name: str) -> Ints:
        """Gather a ``#sigma`` or ``#tau`` column."""
        order, runs = self._by_table()
        gathered = np.concatenate([self.tables[t].int64(name)[rows] for t, rows in runs])
        if order is None:
            return gathered
        result = np.empty_like(gathered)
        result[order] = gathered
        return result

    def _by_table(self) -> tuple[Ints | None, list[tuple[int, Ints]]]:
        """The permutation that sorts the rows by table (None: they are), and each table's rows."""
        if self._runs is None:
            self._runs = self._sorted_runs()
        return self._runs

    def _sorted_runs(self) -> tuple[Ints | None, list[tuple[int, Ints]]]:
        if self.which is None or len(self.tables) == 1:
            return None, [(0, self.rows)]
        which, rows, order = self.which, self.rows, None
        if bool((which[1:] < which[:-1]).any()):
            order = np.argsort(which, kind="stable")
            rows = rows[order]
        counts = np.bincount(which, minlength=len(self.tables))
        ends = np.cumsum(counts)
        runs = [(int(t), rows[ends[t] - counts[t] : ends[t]]) for t in np.flatnonzero(counts)]
        return order, runs or [(0, rows)]


def _inverse(order: Ints) -> Ints:
    inverse = np.empty(len(order), np.int64)
    inverse[order] = np.arange(len(order))
    return inverse


def concat_rows(sets: Sequence[RowSet]) -> RowSet:
    """Row sets one after the other."""
    if len(sets) == 1:
        return sets[0]
    # Sixteen bits sort by radix, and nearly always suffice.
    kind: type[np.integer[Any]] = (
        np.int16 if sum(len(s.tables) for s in sets) < 1 << 15 else np.int32
    )
    tables: list[Table] = []
    which, rows = [], []
    for one in sets:
        base = len(tables)
        tables.extend(one.tables)
        if one.which is None:
            which.append(np.full(len(one.rows), base, kind))
        else:
            which.append(one.which.astype(kind) + base)
        rows.append(one.rows)
    return RowSet(tuple(tables), np.concatenate(which), np.concatenate(rows))


@dataclass(slots=True)
class Partial:
    """A partial result: ``length`` tuples, each label's rows in one of the row sets.

    Attributes:
        sets: the row sets.
        place: label -> (row set, member prefix in its tables: empty for base rows).
        start: the label of the tuple whose arrival made this.
    """

    length: int
    sets: tuple[RowSet, ...]
    place: dict[Label, tuple[int, str]]
    start: Label
    _cache: dict[tuple[str, str], Any] = field(default_factory=dict)

    def column(self, label: Label, name: str) -> pa.Array:
        """A stream column of ``label``."""
        key = (label, name)
        found = self._cache.get(key)
        if found is None:
            at, member = self.place[label]
            found = self.sets[at].column(f"{member}.{name}" if member else name)
            self._cache[key] = found
        return found

    def sigma(self, label: Label) -> Ints:
        """Arrival sequence of ``label``'s tuples."""
        return self._int64(label, SIGMA)

    def tau(self, label: Label) -> Ints:
        """Event time of ``label``'s tuples, microseconds."""
        return self._int64(label, TAU)

    def batch(self, label: Label) -> Ints:
        """The batch in which ``label``'s tuples arrived."""
        return self.sigma(label) >> OFFSET_BITS

    def _int64(self, label: Label, name: str) -> Ints:
        key = (label, name)
        found: Ints | None = self._cache.get(key)
        if found is None:
            at, member = self.place[label]
            found = self.sets[at].int64(f"{name}:{member}" if member else name)
            self._cache[key] = found
        return found

    def take(self, positions: Ints) -> Partial:
        """The tuples at ``positions``."""
        return Partial(
            len(positions), tuple(s.take(positions) for s in self.sets), self.place, self.start
        )

    def where(self, mask: NDArray[np.bool_] | None) -> Partial:
        """The tuples for which ``mask`` holds (all of them if it is None)."""
        if mask is None or bool(mask.all()):
            return self
        return self.take(np.flatnonzero(mask))

    def extend(self, positions: Ints, rows: RowSet, place: dict[Label, str]) -> Partial:
        """Join: tuple ``positions[i]`` with ``rows[i]``, which fills the labels of ``place``
        (label -> member prefix).
        """
        sets = (*(s.take(positions) for s in self.sets), rows)
        at = len(self.sets)
        return Partial(
            len(positions),
            sets,
            {**self.place, **{label: (at, member) for label, member in place.items()}},
            self.start,
        )


def concat_partials(parts: Sequence[Partial]) -> Partial:
    """Partials over the same labels, one after the other.

    Their row sets may be cut differently (an MIR's labels share one, its parts' don't), so every
    label gets a row set of its own unless the cuts agree.
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


def _own_rows(partial: Partial, label: Label) -> RowSet:
    at, member = partial.place[label]
    rows = partial.sets[at]
    if not member:
        return rows
    return RowSet(tuple(_Renamed(t, member) for t in rows.tables), rows.which, rows.rows)


@dataclass(frozen=True, slots=True)
class _Renamed:
    """An MIR's table seen as one of its members' base rows."""

    table: Table
    member: str

    def column(self, name: str) -> pa.Array:
        return self.table.column(f"{self.member}.{name}")

    def int64(self, name: str) -> Ints:
        return self.table.int64(f"{name}:{self.member}")
