"""Maintained tables of ranked joined rows: ORDER BY … LIMIT of all rows or of each partition; and
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
from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.columns.arrow_types import schema_of
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.tables.inputs import Changes, Inputs
from anabranch_runtime.tables.ordered import FirstNodes, Ordered, least_tuples
from anabranch_runtime.tables.slots import Slots
from anabranch_runtime.tables.windows.frames import SortedRows
from anabranch_runtime.tables.windows.values import window_values
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout

_WEIGHT = "anabranch_weight"
_NUMBER = TupleField(DataType(TypeKind.BIGINT), nullable=False)


class _Shown(NamedTuple):
    """Rows of some partitions that the view shows (that are in its result).

    Attributes:
        words: tuple of each row. ``places``: value of the ranking function; ``ranks``: position in
            the partition, from 1 after OFFSET.
        partitions: position of each row's partition in the argument ``slots``; ascending.
        computed: values of window functions by name.
    """

    words: Ints
    places: Ints
    ranks: Ints
    partitions: Ints
    computed: Mapping[str, pa.Array]

    def at(self, rows: Ints) -> _Shown:
        """Return the shown rows at these positions."""
        words, places, ranks, partitions, computed = self
        taken = {name: one.take(pa.array(rows)) for name, one in computed.items()}
        return _Shown(words[rows], places[rows], ranks[rows], partitions[rows], taken)


class RankedTable:
    """The rows of a view without grouping, in order."""

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
        #: Columns of joined rows whose values the table keeps.
        self.columns = [n for n in dict.fromkeys(read) if n not in computed]
        fields = [TupleField(s.expr.type, s.descending, s.nulls_first) for s in view.order]
        # Descending fields have inverted words, which window functions can't have as arguments.
        apart = {one.column for one in view.windowed}
        #: Kept column -> position of its field; a sort key's field serves as that of its column.
        self._fields = {
            s.expr.name: n
            for n, s in enumerate(view.order)
            if isinstance(s.expr, Column) and s.expr.name not in apart
            if s.expr.type == kinds[s.expr.name]
        }
        self._beside = [n for n in self.columns if n not in self._fields]
        self._sorts = len(fields)
        self._fields |= {n: self._sorts + at for at, n in enumerate(self._beside)}
        fields += [TupleField(kinds[name]) for name in self._beside]
        self._tree = Ordered(TupleLayout(fields, self.pool))
        self._sort_words = self._tree.layout.end(self._sorts)
        partition = [TupleField(kind) for _, kind in view.partition]
        self._partition = TupleLayout(partition, self.pool) if partition else None
        self._slots = Slots(self._partition.width if self._partition else 1)
        self._read = {c.name for o in self._outputs for c in columns(o.expr)}
        self._plain = all(isinstance(o.expr, Column) for o in self._outputs)
        self._most = None if view.limit is None else view.offset + view.limit
        self._count = 0
        self.forgotten = 0

    def apply(self, rows: Inputs, weights: Ints, version: int) -> pa.Table:
        """Add weighted rows; see :meth:`table.MaintainedTable.apply`."""
        sorts = self._sort_keys(rows)
        slots, fresh = self._found(rows)
        self._tree.make_room(self._slots.room)
        touched, index = self._slots.distinct(slots)
        if not self._deletes and self._most is not None:
            some = self._promising(rows, sorts, touched, index, weights)
            rows, sorts = rows.taken(some), [one.take(pa.array(some)) for one in sorts]
            slots, weights = slots[some], weights[some]
            touched, _ = self._slots.distinct(slots)
        tuples = self._encoded(rows, sorts)
        before = self._shown(self._walk(touched))
        self._tree.add(slots, tuples, weights)
        try:
            walk = self._walk(touched)
            after = self._shown(walk)
            changes = self._compared(touched, before, after, version)
        except BaseException:
            self._tree.add(slots, tuples, -weights)
            self._slots.drop(fresh)
            raise
        self._count += len(after.ranks) - len(before.ranks)
        if not self._deletes and self._most is not None:
            # Without deletes, rows beyond the shown ones can never be shown.
            self._tree.cut(touched, walk.totals)
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
        self._tree.add(slots, self._encoded(rows, self._sort_keys(rows)), weights)
        totals = self._walk(self._slots.all()).totals
        self._count = int(np.maximum(totals - self.view.offset, 0).sum())

    def dump(self) -> list[pa.RecordBatch]:
        """Return the state for a checkpoint: the ranked rows and their weights."""
        walk = self._tree.walk(self._slots.all(), everything=True)
        words = self._tree.words[walk.nodes]
        arrays = [self._column(words, name) for name in self.columns]
        arrays.append(pa.array(self._tree.sizes[walk.nodes, 0]))
        return [pa.RecordBatch.from_arrays(arrays, names=[*self.columns, _WEIGHT])]

    def forget(self, clock: int) -> None:
        """Keep everything: ranked rows have no time windows."""

    # --- parts of an update ----------------------------------------------------------------------

    def _sort_keys(self, rows: Inputs) -> list[pa.Array]:
        def fetch(column: Column) -> pa.Array:
            return rows.column(column.name)

        return [evaluate(s.expr, fetch, len(rows)) for s in self.view.order]

    def _encoded(self, rows: Inputs, sorts: Sequence[pa.Array]) -> Ints:
        return self._tree.layout.encode([*sorts, *(rows.column(n) for n in self._beside)])

    def _found(self, rows: Inputs) -> tuple[Ints, Ints]:
        """Return the slot of each row's partition, and the slots that are new."""
        if self._partition is None:
            return self._slots.find(np.zeros((len(rows), 1), np.int64))
        keys = [rows.column(name) for name, _ in self.view.partition]
        return self._slots.find(self._partition.encode(keys))

    def _promising(
        self, rows: Inputs, sorts: Sequence[pa.Array], slots: Ints, index: Ints, weights: Ints
    ) -> Ints:
        """Return the positions of those input rows that may be shown.

        Args:
            slots: distinct slots. ``index``: position of each row's slot in ``slots``.
        """
        most, ranking, layout = self._most, self.view.ranking, self._tree.layout
        if most is None or ranking is RankFunction.DENSE_RANK:
            return np.arange(len(rows))
        # Sort keys up to the first text suffice, so that texts of dropped rows need no numbers.
        some = sorts[: layout.leading]
        words = layout.encode(some) if some else self._encoded(rows, sorts)
        if not some and ranking is RankFunction.RANK:
            words = np.ascontiguousarray(words[:, : self._sort_words])
        return np.flatnonzero(self._tree.among_first(slots, index, words, weights, most))

    def _walk(self, slots: Ints) -> FirstNodes:
        return self._tree.walk(slots, self._most, self.view.ranking, self._sort_words)

    def _shown(self, walk: FirstNodes) -> _Shown:
        totals = walk.totals
        partitions = np.repeat(np.arange(len(totals)), totals)
        ranks = np.arange(1, len(partitions) + 1) - (np.cumsum(totals) - totals)[partitions]
        rows = np.repeat(np.arange(len(walk.nodes)), walk.times)
        places = ranks
        if self.view.ranking is not RankFunction.ROW_NUMBER:
            places = walk.places[rows]
        words = self._tree.words[walk.nodes[rows]]
        found = _Shown(words, places, ranks - self.view.offset, partitions, {})
        if self.view.offset:
            found = found.at(np.flatnonzero(found.ranks > 0))
        return found._replace(computed=self._computed(found)) if self.view.windowed else found

    def _computed(self, shown: _Shown) -> dict[str, pa.Array]:
        """Return window function -> its values for the shown rows."""
        rows = SortedRows.of(shown.partitions, shown.words[:, : self._sort_words])
        return {
            one.name: window_values(
                *(one, rows, shown.words, self._tree.layout),
                None if one.column is None else self._fields[one.column],
                lambda e: evaluate(e, lambda c: self._fetched(shown, c), len(shown.ranks)),
            )
            for one in self.view.windowed
        }

    def _column(self, words: Ints, name: str) -> pa.Array:
        return self._tree.layout.column(words, self._fields[name])

    def _fetched(self, shown: _Shown, column: Column) -> pa.Array:
        if column.name in self._fields:
            return self._column(shown.words, column.name)
        return pa.array(shown.places) if column.name == PLACE else shown.computed[column.name]

    def _values(self, shown: _Shown) -> list[pa.Array]:
        """Return the view's output columns for shown rows."""

        def fetch(column: Column) -> pa.Array:
            return self._fetched(shown, column)

        return [evaluate(o.expr, fetch, len(shown.ranks)) for o in self._outputs]

    def _differs(self, old: _Shown, new: _Shown) -> Bools:
        """Return the mask of rows whose outputs differ; both have the same number of rows."""
        layout, found = self._tree.layout, np.zeros(len(new.ranks), np.bool_)
        for name in self._read:
            if name in self._fields:
                field = self._fields[name]
                for at in range(layout.end(field), layout.end(field + 1)):
                    found |= old.words[:, at] != new.words[:, at]
            elif name == PLACE:
                found |= old.places != new.places
            else:
                kinds = [one.type for one in self.view.windowed if one.name == name]
                found |= _unequal(kinds, [old.computed[name]], [new.computed[name]])
        if not self._plain:
            # Rows with different values may still have equal outputs.
            some = np.flatnonzero(found)
            pairs = [self._values(one.at(some)) for one in (old, new)]
            found[some] = _unequal([o.expr.type for o in self._outputs], *pairs)
        return found

    def _compared(self, slots: Ints, before: _Shown, after: _Shown, version: int) -> pa.Table:
        """Return the changes of the view from the rows ``before`` to the rows ``after``."""
        # Position of the old row with the same partition and rank as each new row.
        sizes_old = np.bincount(before.partitions, minlength=len(slots))
        sizes_new = np.bincount(after.partitions, minlength=len(slots))
        starts_old = np.cumsum(sizes_old) - sizes_old
        place = after.ranks - 1
        there = np.flatnonzero(place < sizes_old[after.partitions])
        at = (starts_old[after.partitions] + place)[there]
        differs = np.ones(len(place), np.bool_)
        differs[there] = self._differs(before.at(at), after.at(there))
        upserts = np.flatnonzero(differs)
        gone = np.flatnonzero(before.ranks > sizes_new[before.partitions])
        if not len(upserts) and not len(gone):
            return self._changes.nothing()
        values = self._values(after.at(upserts))
        found = {o.name: v for o, v in zip(self._outputs, values, strict=True)}
        ranks = np.concatenate([after.ranks[upserts], before.ranks[gone]])
        if self._partition is not None and len(gone):
            keys = self._partition.decode(self._slots.words[slots[before.partitions[gone]]])
            # The identity begins with the columns of the partition.
            for name, key in zip(self.view.identity, keys, strict=False):
                found[name] = pa.concat_arrays([found[name].cast(key.type), key])
        found[RANK] = pa.array(ranks)
        return self._changes.table(found, len(upserts), len(gone), version)

    # --- reading ---------------------------------------------------------------------------------

    def __len__(self) -> int:
        return self._count

    def rows(self, limit: int | None) -> pa.Table:
        """Return up to ``limit`` present rows, by partition, then by rank."""
        slots = self._slots.all()
        slots = slots[self._tree.totals(slots) > 0]
        if self._partition is not None and len(slots):
            layout = TupleLayout([*self._partition.fields, _NUMBER], self.pool)
            keys = np.column_stack([self._slots.words[slots], slots])
            if limit is not None and not self.view.offset:
                keys = keys[least_tuples(keys, layout.texts, limit)]
            order, zeros = Ordered(layout), np.zeros(len(keys), np.int64)
            order.add(zeros, keys, zeros + 1)
            slots = order.words[order.walk(zeros[:1]).nodes, -1]
        shown = self._shown(self._walk(slots))
        if limit is not None and not self.view.windowed:
            shown = shown.at(np.arange(min(limit, len(shown.ranks))))
        table = pa.Table.from_arrays(self._values(shown), schema=self._schema)
        table = table.append_column(pa.field(RANK, pa.int64()), pa.array(shown.ranks))
        return table if limit is None else table.slice(0, limit)

    @property
    def used_texts(self) -> tuple[int, int]:
        """Return the number of texts in use, and of their bytes."""
        used = np.zeros(self.pool.count, np.bool_)
        self._tree.mark_texts(used)
        if self._partition is not None:
            for at in np.flatnonzero(self._partition.texts):
                used[self._slots.words[self._slots.alive, at]] = True
        return self.pool.size_of(used)

    @property
    def bytes(self) -> int:
        """Return the approximate bytes of the table in memory."""
        return self.pool.bytes + self._slots.bytes + self._tree.bytes


def _unequal(kinds: Sequence[DataType], old: Sequence[pa.Array], new: Sequence[pa.Array]) -> Bools:
    """Return the mask of rows that differ in some column."""
    layout = TupleLayout([TupleField(kind, exact=True) for kind in kinds], Texts())
    found: Bools = (layout.encode(old) != layout.encode(new)).any(axis=1)
    return found
