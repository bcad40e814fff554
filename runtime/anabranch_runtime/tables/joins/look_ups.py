"""Results of a chain of look-ups (``contract.queries.outer_joins``) from *left rows* and *pairs*.

Left rows equal in all columns have the same partners. So ``n`` equal left rows and ``m`` equal
partners make ``n * m`` equal pairs, even where deletes count as -1. The state has the net numbers
of equal left rows, and of equal pairs of each look-up; a pair belongs to a left row or, in a chain,
to a pair of an earlier look-up (``LookUp.parent``). A left row or partner with a net number of zero
or less is absent.

A round changes some left rows and pairs. The changes of the results follow from the combinations,
before and after the round, of the left rows to which these belong.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.outer_joins import JoinKind, LookUp, OuterJoin
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_contract.queries.views import WEIGHT
from anabranch_runtime.columns.arrays import Ints
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.tables import kernels
from anabranch_runtime.tables.inputs import Inputs, one_batch
from anabranch_runtime.tables.joins.results import Combinations, net, results_of
from anabranch_runtime.tables.slots import Slots
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout, grown, integers_of

Columns = tuple[tuple[str, DataType], ...]

_NUMBER = TupleField(DataType(TypeKind.BIGINT), nullable=False)
_NONE = kernels.NONE
_FEW_TEXTS = 4096


def columns_of(outer: OuterJoin) -> list[Columns]:
    """Return the columns of left rows, then of each look-up's pairs (left row, partner); of a full
    join, then of right rows. For an ASOF join: of left rows and of right rows."""
    if outer.nearest is not None:
        return [outer.left, outer.look_ups[0].columns]
    columns = [outer.left]
    for look_up in outer.look_ups:
        columns.append((*columns[look_up.parent], *look_up.columns))
    first = outer.look_ups[0]
    return [*columns, first.columns] if first.kind is JoinKind.FULL else columns


def results(outer: OuterJoin, tables: Sequence[pa.Table]) -> pa.Table:
    """Compute the results of an outer join in one batch, which has all partners of its left rows.

    Args:
        tables: left rows, then the pairs of each look-up, with the columns of :func:`columns_of`.

    Raises:
        ExpressionError: a condition or an output column can't be evaluated for a row.
    """
    made = LookUps(outer)
    found = made.apply(tables)
    made.check()
    return found


class _NetRows:
    """Left rows (``parent`` None), or the pairs of a look-up: distinct rows with net numbers.

    A pair's identity is the slot of its *owner* (left row or earlier pair) and its partner's
    columns.
    """

    def __init__(self, columns: Columns, parent: _NetRows | None, pool: Texts) -> None:
        self.columns, self.parent = columns, parent
        fields = [TupleField(kind, exact=True) for _, kind in columns]
        self._own = 0 if parent is None else 1
        self.layout = TupleLayout([_NUMBER] * self._own + fields, pool)
        self.slots = Slots(self.layout.width)
        self.net = np.zeros(self.slots.room, np.int64)
        self.pairs: list[_NetRows] = []
        #: First pair of each owner; next and previous pair with the same owner.
        self._heads: Ints = np.empty(0, np.int64)
        self._following, self._before = np.empty((2, self.slots.room), np.int64)
        if parent is not None:
            parent.pairs.append(self)

    def find(self, rows: Inputs, touched: dict[_NetRows, list[Ints]]) -> Ints:
        """Return the slot of each row; unknown rows are added with the net number 0.

        Args:
            touched: receives the slots of the rows and of their owners.
        """
        own = [rows.column(name) for name, _ in self.columns]
        if self.parent is not None:
            own.insert(0, pa.array(self.parent.find(rows, touched)))
        slots = self.entered(self.layout.encode(own))
        touched.setdefault(self, []).append(slots)
        return slots

    def entered(self, words: Ints) -> Ints:
        """Return the slots of encoded rows; a new row is added with the net number 0."""
        slots, fresh = self.slots.find(words)
        room = self.slots.room
        if len(self.net) < room:
            self.net, self._following, self._before = (
                grown(one, room) for one in (self.net, self._following, self._before)
            )
        self.net[fresh] = 0
        if self.parent is not None:
            known, wanted = len(self._heads), self.parent.slots.room
            if known < wanted:
                self._heads = grown(self._heads, wanted)
                self._heads[known:] = _NONE
            owners = self.slots.words[fresh, 0]
            kernels.link(fresh, owners, self._heads, self._following, self._before)
        return slots

    def of(self, owners: Ints) -> tuple[Ints, Ints]:
        """Return the pairs of ``owners`` (-1: none), and for each pair its owner's position."""
        known = np.where(owners < len(self._heads), owners, _NONE)
        count = kernels.count_linked(known, self._heads, self._following)
        places, found = np.empty(count, np.int64), np.empty(count, np.int64)
        kernels.list_linked(known, self._heads, self._following, places, found)
        return found, places

    def drop_absent(self, touched: Ints) -> None:
        """Remove rows among ``touched`` that have the net number 0 and no pairs."""
        gone, _ = self.slots.distinct(touched)
        gone = gone[self.net[gone] == 0]
        for pairs in self.pairs:
            known = gone < len(pairs._heads)
            known[known] = pairs._heads[gone[known]] != _NONE
            gone = gone[~known]
        if self.parent is not None:
            owners = self.slots.words[gone, 0]
            kernels.unlink(gone, owners, self._heads, self._following, self._before)
        self.slots.drop(gone)

    def column(self, name: str, slots: Ints) -> pa.Array:
        """Return the column ``name`` of the rows in ``slots``; NULL for the slot -1."""
        place = self._own + [n for n, _ in self.columns].index(name)
        words = self.slots.words[np.maximum(slots, 0)]
        words[slots == _NONE, self.layout.end(place)] = _NONE
        return self.layout.column(words, place)

    def dump(self, numbers: Ints) -> tuple[pa.RecordBatch, Ints]:
        """Return a dump of rows, and their numbers by slot. ``numbers``: the parent's, if any."""
        slots = self.slots.all()
        words = self.slots.words[slots]
        if self.parent is not None:
            words[:, 0] = numbers[words[:, 0]]
        columns = [*self.layout.decode(words), pa.array(self.net[slots])]
        numbered = np.full(self.slots.room, _NONE, np.int64)
        numbered[slots] = np.arange(len(slots))
        names = [f"v{n}" for n in range(len(columns))]
        return pa.RecordBatch.from_arrays(columns, names=names), numbered

    def load(self, dumped: pa.RecordBatch, owners: Ints) -> Ints:
        """Enter a dump's rows; return row number -> slot. ``owners``: this result of the parent."""
        *columns, net = dumped.columns
        if self.parent is not None:
            columns[0] = pa.array(owners[integers_of(columns[0])])
        slots = self.entered(self.layout.encode(columns))
        self.net[slots] = integers_of(net)
        return slots

    @property
    def bytes(self) -> int:
        """Return the bytes of left rows or pairs in memory."""
        arrays = (self.net, self._heads, self._following, self._before)
        return self.slots.bytes + sum(a.nbytes for a in arrays)


class LookUps:
    """The left rows and pairs of a chain of look-ups."""

    def __init__(self, outer: OuterJoin) -> None:
        self.outer = outer
        self._columns = columns_of(outer)[: 1 + len(outer.look_ups)]
        #: Column -> its table's number: 0 for left rows, then one per look-up.
        self._places = {name: 0 for name, _ in outer.left}
        for number, look_up in enumerate(outer.look_ups, 1):
            self._places |= {name: number for name, _ in look_up.columns}
        first = outer.look_ups[0]
        #: Right rows of a full join, treated as left rows: those without a match are results.
        self._right: LookUps | None = None
        if first.kind is JoinKind.FULL:
            anti = LookUp(JoinKind.ANTI, first.partner, ())
            self._right = LookUps(replace(outer, left=first.columns, look_ups=(anti,)))
        self._start()

    def _start(self) -> None:
        self.pool = Texts()
        self._tables = [_NetRows(self.outer.left, None, self.pool)]
        for one in self.outer.look_ups:
            self._tables.append(_NetRows(one.columns, self._tables[one.parent], self.pool))
        self._most_texts = _FEW_TEXTS

    def apply(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Add weighted left rows and pairs; return the results (as changes, if rows are ``kept``).

        Args:
            tables: left rows, then the pairs of each look-up, with the columns of
                :func:`columns_of`, and :data:`.WEIGHT` unless all weights are 1; of a full join,
                then the right rows.

        Raises:
            ExpressionError: a condition or an output column can't be evaluated for a row. The state
                is then undefined.
        """
        if self._right is not None:
            *tables, right = tables
            alone = self._right.apply([right, tables[1]])
            return pa.concat_tables([self._applied(tables), alone])
        return self._applied(tables)

    def _applied(self, tables: Sequence[pa.Table]) -> pa.Table:
        touched: dict[_NetRows, list[Ints]] = {}
        found = []
        for own, rows, columns in zip(self._tables, tables, self._columns, strict=True):
            inputs = Inputs(one_batch(rows), dict(columns))
            weights = rows[WEIGHT].to_numpy() if WEIGHT in rows.column_names else 1
            found.append((own, own.find(inputs, touched), weights))
        left = self._tables[0]
        roots, _ = left.slots.distinct(np.concatenate(touched[left]))
        before = self._combined(roots) if self.outer.kept else None
        for own, slots, weights in found:
            np.add.at(own.net, slots, weights)
        slots, times = self._changed(before, self._combined(roots))
        made = results_of(self.outer, self._reader(slots), times)
        if self.outer.kept:
            for own in reversed(self._tables):
                if own in touched:
                    own.drop_absent(np.concatenate(touched[own]))
            if self.pool.count > self._most_texts:
                self._restore(self._dumped())
        return made

    def check(self) -> None:
        """Check that the left row of each pair is in the same batch, if none are kept."""
        for own in self._tables[1:]:
            assert own.parent is not None
            slots = own.slots.all()
            rows = own.parent.net[own.slots.words[slots, 0]]
            fits = (rows > 0) & (own.net[slots] % np.maximum(rows, 1) == 0)
            assert fits.all(), "pairs without their rows"

    def _combined(self, roots: Ints) -> Combinations:
        """Return the combinations of the left rows ``roots`` that have a positive net number: the
        slot in each table (-1: none), and the number of equal combinations."""
        left = self._tables[0]
        times = left.net[roots]
        slots, times = [roots[times > 0]], times[times > 0]
        for look_up, own in zip(self.outer.look_ups, self._tables[1:], strict=True):
            assert own.parent is not None
            owners = slots[look_up.parent]
            pairs, places = own.of(owners)
            each = own.net[pairs] // np.maximum(own.parent.net[owners[places]], 1)
            pairs, places, each = (x[each > 0] for x in (pairs, places, each))
            alone = np.ones(len(owners), np.bool_)
            alone[places] = False
            if look_up.kind in (JoinKind.SEMI, JoinKind.ANTI):
                places = np.flatnonzero(alone == (look_up.kind is JoinKind.ANTI))
                pairs, each = np.full(len(places), _NONE), np.ones(len(places), np.int64)
            elif look_up.kind is not JoinKind.INNER:
                more = np.flatnonzero(alone)
                places = np.concatenate([places, more])
                pairs = np.concatenate([pairs, np.full(len(more), _NONE)])
                each = np.concatenate([each, np.ones(len(more), np.int64)])
            slots, times = [*(one[places] for one in slots), pairs], times[places] * each
        return Combinations(np.column_stack(slots), times)

    def _changed(self, before: Combinations | None, after: Combinations) -> Combinations:
        if before is None:
            return after
        slots = np.concatenate([before.rows, after.rows])
        return net(slots, np.concatenate([-before.times, after.times]))

    def _reader(self, slots: Ints) -> Callable[[Column], pa.Array]:
        def read(column: Column) -> pa.Array:
            number = self._places.get(column.name)
            if number is None:
                # A column of left rows, which is NULL in a right row without a match.
                return pa.nulls(len(slots), arrow_type(column.type))
            found = self._tables[number].column(column.name, slots[:, number])
            return found.cast(arrow_type(column.type))

        return read

    # --- snapshots -------------------------------------------------------------------------------

    def dump(self) -> list[pa.RecordBatch]:
        """Return the state for a checkpoint: left rows, pairs, right rows and their pairs."""
        return [*self._dumped(), *(() if self._right is None else self._right.dump())]

    def _dumped(self) -> list[pa.RecordBatch]:
        numbers, found = [np.empty(0, np.int64)], list[pa.RecordBatch]()
        parents = [0, *(one.parent + 1 for one in self.outer.look_ups)]
        for own, parent in zip(self._tables, parents, strict=True):
            rows, numbered = own.dump(numbers[parent])
            numbers.append(numbered)
            found.append(rows)
        return found

    @classmethod
    def load(cls, outer: OuterJoin, dumped: Sequence[pa.RecordBatch]) -> LookUps:
        """Restore left rows and pairs of the look-ups from a dump."""
        made = cls(outer)
        own = len(made._tables)
        made._restore(dumped[:own])
        if made._right is not None:
            made._right._restore(dumped[own:])
        return made

    def _restore(self, dumped: Sequence[pa.RecordBatch]) -> None:
        self._start()
        slots = [np.empty(0, np.int64)]
        parents = [0, *(one.parent + 1 for one in self.outer.look_ups)]
        for own, rows, parent in zip(self._tables, dumped, parents, strict=True):
            slots.append(own.load(rows, slots[parent]))
        self._most_texts = 2 * self.pool.count + _FEW_TEXTS

    @property
    def bytes(self) -> int:
        """Approximate bytes in memory of the left rows and pairs."""
        right = 0 if self._right is None else self._right.bytes
        return right + self.pool.bytes + sum(own.bytes for own in self._tables)
