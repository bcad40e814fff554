"""Maintained tables of ranked joined rows: ORDER BY … LIMIT, of all rows or of each partition;
rows with values of window functions.

Rows equal in all sort keys are ordered by the view's columns, then by the other columns that it
reads. -0.0 becomes 0.0, as the two are equal. If no row is ever deleted, rows that can't be shown
any more are dropped.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Column, columns
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import PLACE, RANK, RankFunction, View
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.columns.arrow_types import schema_of
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.tables.inputs import Changes, Inputs
from anabranch_runtime.tables.kernels import NONE
from anabranch_runtime.tables.ordered import Ordered
from anabranch_runtime.tables.slots import Slots
from anabranch_runtime.tables.windows.frames import SortedRows
from anabranch_runtime.tables.windows.values import window_values
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout

_WEIGHT = "anabranch_weight"
_NUMBER = TupleField(DataType(TypeKind.BIGINT), nullable=False)


class _Shown(NamedTuple):
    """Shown rows of some partitions.

    Attributes:
        nodes: node of each row. ``places``: value of the ranking function; ``ranks``: position in
            the partition, from 1 after OFFSET.
        partitions: position of each row's partition in the argument ``slots``; ascending.
    """

    nodes: Ints
    places: Ints
    ranks: Ints
    partitions: Ints


class RankedTable:
    """The state of a view without grouping."""

    def __init__(self, view: View, kinds: Mapping[str, DataType], *, deletes: bool) -> None:
        self.view, self._kinds, self._deletes = view, kinds, deletes
        self.pool = Texts()
        self._changes = Changes(view)
        self._outputs = (*view.projection, *view.hidden)
        self._schema = schema_of(self._outputs)
        read = [c.name for o in self._outputs for c in columns(o.expr)]
        read += [name for name, _ in view.partition]
        read += [c.name for s in view.order for c in columns(s.expr)]
        read += [one.column for one in view.windowed if one.column is not None]
        read += [c.name for one in view.windowed if one.default for c in columns(one.default)]
        computed = {PLACE, *(one.name for one in view.windowed)}
        #: Columns of joined rows that are kept.
        self.columns = [n for n in dict.fromkeys(read) if n not in computed]
        sorts = [TupleField(s.expr.type, s.descending, s.nulls_first) for s in view.order]
        kept = [TupleField(kinds[name]) for name in self.columns]
        self._sorts = len(sorts)
        self._tree = Ordered(TupleLayout([*sorts, *kept], self.pool))
        self._sort_words = self._tree.layout.end(self._sorts)
        partition = [TupleField(kind) for _, kind in view.partition]
        self._partition = TupleLayout(partition, self.pool) if partition else None
        self._slots = Slots(self._partition.width if self._partition else 1)
        self._plain = TupleLayout(
            [TupleField(o.expr.type, exact=True) for o in self._outputs], self.pool
        )
        self._most = None if view.limit is None else view.offset + view.limit
        self._count = 0
        self.forgotten = 0

    def apply(self, rows: Inputs, weights: Ints, version: int) -> pa.Table:
        """Add weighted rows; see :meth:`table.MaintainedTable.apply`."""
        tuples = self._encoded(rows)
        slots, fresh = self._found(rows)
        self._tree.make_room(self._slots.room)
        touched, _ = self._slots.distinct(slots)
        if not self._deletes:
            slots = self._promising(slots, tuples)
        before = self._shown(touched)
        old = self._words(before)
        self._tree.add(slots, tuples, weights)
        try:
            after = self._shown(touched)
            values = self._values(after)
            new = self._plain.encode(values)
        except BaseException:
            self._tree.add(slots, tuples, -weights)
            self._slots.drop(fresh)
            raise
        changes = self._compared(touched, before, old, after, new, values, version)
        self._count += len(after.nodes) - len(before.nodes)
        if not self._deletes:
            self._cut(touched)
        empty = self._tree.empty(touched)
        if empty.any():
            self._slots.drop(touched[empty])
        return changes

    def load(self, dumped: Sequence[pa.RecordBatch]) -> None:
        """Restore the state of a dump in a new table."""
        (batch,) = dumped
        if not batch.num_rows:
            return
        rows = Inputs(batch, self._kinds)
        weights = np.array(batch.column(_WEIGHT), np.int64)
        slots, _ = self._found(rows)
        self._tree.make_room(self._slots.room)
        self._tree.add(slots, self._encoded(rows), weights)
        self._count = len(self._shown(self._slots.all()).nodes)

    def dump(self) -> list[pa.RecordBatch]:
        """Return the state: rows and their weights."""
        walk = self._tree.walk(self._slots.all(), everything=True)
        words = self._tree.words[walk.nodes]
        arrays = self._tree.layout.decode(words, self._sorts)
        arrays.append(pa.array(self._tree.sizes[walk.nodes, 0]))
        return [pa.RecordBatch.from_arrays(arrays, names=[*self.columns, _WEIGHT])]

    def forget(self, clock: int) -> None:
        """Keep everything: ranked rows have no time windows."""

    # --- parts of an update ----------------------------------------------------------------------

    def _encoded(self, rows: Inputs) -> Ints:
        def fetch(column: Column) -> pa.Array:
            return rows.column(column.name)

        sorts = [evaluate(s.expr, fetch, len(rows)) for s in self.view.order]
        return self._tree.layout.encode([*sorts, *(rows.column(n) for n in self.columns)])

    def _found(self, rows: Inputs) -> tuple[Ints, Ints]:
        """Return the slot of each row's partition, and the new slots."""
        if self._partition is None:
            return self._slots.find(np.zeros((len(rows), 1), np.int64))
        keys = [rows.column(name) for name, _ in self.view.partition]
        return self._slots.find(self._partition.encode(keys))

    def _promising(self, slots: Ints, tuples: Ints) -> Ints:
        """Return ``slots`` with -1 for rows that can't be shown."""
        most, ranking = self._most, self.view.ranking
        if most is None or ranking is RankFunction.DENSE_RANK:
            return slots
        words = self._tree.layout.width if ranking is RankFunction.ROW_NUMBER else self._sort_words
        return np.where(self._tree.beyond(slots, tuples, most, words), NONE, slots)

    def _shown(self, slots: Ints) -> _Shown:
        walk = self._tree.walk(slots, self._most, self.view.ranking, self._sort_words)
        counts = np.diff(walk.ends, prepend=0)
        rows = np.repeat(np.arange(len(walk.nodes)), walk.times)
        partitions = np.repeat(np.repeat(np.arange(len(slots)), counts), walk.times)
        starts = np.searchsorted(partitions, partitions)
        ranks = np.arange(len(rows)) - starts + 1
        places = walk.places[rows]
        if self.view.ranking is RankFunction.ROW_NUMBER:
            places = ranks
        found = _Shown(walk.nodes[rows], places, ranks - self.view.offset, partitions)
        if not self.view.offset:
            return found
        return _Shown(*(part[found.ranks > 0] for part in found))

    def _values(self, shown: _Shown) -> list[pa.Array]:
        """Return the output columns of shown rows."""
        words, layout = self._tree.words[shown.nodes], self._tree.layout
        places = {name: self._sorts + n for n, name in enumerate(self.columns)}

        def fetch(column: Column) -> pa.Array:
            if column.name == PLACE and PLACE not in places:
                return pa.array(shown.places)
            if column.name in beside:
                return beside[column.name]
            return layout.column(words, places[column.name])

        beside = dict[str, pa.Array]()
        if self.view.windowed:
            rows = SortedRows.of(shown.partitions, words[:, : self._sort_words])
            for one in self.view.windowed:
                field = None if one.column is None else places[one.column]
                beside[one.name] = window_values(
                    one, rows, words, layout, field, lambda e: evaluate(e, fetch, len(words))
                )
        return [evaluate(o.expr, fetch, len(words)) for o in self._outputs]

    def _words(self, shown: _Shown) -> Ints:
        return self._plain.encode(self._values(shown))

    def _compared(
        self, slots: Ints, before: _Shown, old: Ints, after: _Shown, new: Ints,
        values: list[pa.Array], version: int,
    ) -> pa.Table:  # fmt: skip
        """Return the changes from the rows ``before``, with the words ``old``, to ``after``."""
        # Position of each new row's predecessor, of equal partition and rank.
        sizes_old = np.bincount(before.partitions, minlength=len(slots))
        sizes_new = np.bincount(after.partitions, minlength=len(slots))
        starts_old = np.cumsum(sizes_old) - sizes_old
        place = after.ranks - 1
        there = place < sizes_old[after.partitions]
        differs = np.ones(len(new), np.bool_)
        at = (starts_old[after.partitions] + place)[there]
        differs[there] = (new[there] != old[at]).any(axis=1)
        upserts = np.flatnonzero(differs)
        gone = np.flatnonzero(before.ranks > sizes_new[before.partitions])
        if not len(upserts) and not len(gone):
            return self._changes.nothing()
        deleted = _Shown(*(part[gone] for part in before))
        picked = pa.array(upserts)
        found = {o.name: v.take(picked) for o, v in zip(self._outputs, values, strict=True)}
        ranks = np.concatenate([after.ranks[upserts], deleted.ranks])
        if self._partition is not None and len(gone):
            keys = self._partition.decode(self._slots.words[slots[deleted.partitions]])
            # The identity begins with the partition's columns.
            for name, key in zip(self.view.identity, keys, strict=False):
                found[name] = pa.concat_arrays([found[name].cast(key.type), key])
        found[RANK] = pa.array(ranks)
        return self._changes.table(found, len(upserts), len(gone), version)

    def _cut(self, slots: Ints) -> None:
        """Remove the rows that can't be shown any more."""
        if self._most is None:
            return
        walk = self._tree.walk(slots, self._most, self.view.ranking, self._sort_words)
        ends = np.cumsum(np.concatenate([[0], walk.times]))[np.concatenate([[0], walk.ends])]
        self._tree.cut(slots, np.diff(ends))

    # --- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def rows(self, limit: int | None) -> pa.Table:
        """Return up to ``limit`` present rows, by partition, then by rank."""
        slots = self._slots.all()
        slots = slots[self._tree.totals(slots) > 0]
        if self._partition is not None and len(slots):
            order = Ordered(TupleLayout([*self._partition.fields, _NUMBER], self.pool))
            zeros = np.zeros(len(slots), np.int64)
            order.add(zeros, np.column_stack([self._slots.words[slots], slots]), zeros + 1)
            most = None if self.view.offset else limit
            slots = order.words[order.walk(zeros[:1], most).nodes, -1]
        shown = self._shown(slots)
        if limit is not None and not self.view.windowed:
            shown = _Shown(*(part[:limit] for part in shown))
        table = pa.Table.from_arrays(self._values(shown), schema=self._schema)
        table = table.append_column(pa.field(RANK, pa.int64()), pa.array(shown.ranks))
        return table if limit is None else table.slice(0, limit)

    @property
    def bytes(self) -> int:
        """Return the approximate size in memory."""
        return self.pool.bytes + self._slots.bytes + self._tree.bytes
