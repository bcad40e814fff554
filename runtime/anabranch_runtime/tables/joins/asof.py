"""Results of an ASOF join (:class:`.Nearest`) from left rows and right rows.

The rows of each side are kept in the order of their times, by key. A new or deleted right row can
change only the results of left rows between its time and that of the next right row. So the cost of
a batch depends only on its rows, and on the results that these change.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.outer_joins import JoinKind, Nearest, NearestSide, OuterJoin
from anabranch_contract.queries.views import WEIGHT
from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.expressions.evaluate import filter_mask
from anabranch_runtime.tables.inputs import Inputs, one_batch
from anabranch_runtime.tables.joins.look_ups import Columns, columns_of
from anabranch_runtime.tables.joins.results import results_of
from anabranch_runtime.tables.kernels import NONE
from anabranch_runtime.tables.ordered import Ordered
from anabranch_runtime.tables.slots import Slots
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout, integers_of

_FEW_TEXTS = 4096
#: Slot of left rows with a NULL key or time; it never has right rows.
_UNMATCHED = 0
_WEIGHT = 0


class _Timed(NamedTuple):
    """Rows of one side: the slot of each row's key (-1 if it has a NULL), its values as 64-bit
    words beginning with the time, and its weight."""

    slots: Ints
    words: Ints
    weights: Ints


class _TimedSide:
    """Rows of one side of an ASOF join, in the order of their times, by slot of their key."""

    def __init__(self, columns: Columns, keys: Sequence[str], time: str, pool: Texts) -> None:
        self.columns, self.kinds = columns, dict(columns)
        self.keys, self.time = tuple(keys), time
        own = [TupleField(kind, exact=True) for _, kind in columns]
        self.layout = TupleLayout([TupleField(self.kinds[time], nullable=False), *own], pool)
        self.rows = Ordered(self.layout)
        self.place = {name: n for n, (name, _) in enumerate(columns, 1)}

    def words(self, rows: Inputs) -> Ints:
        """Return the 64-bit words as which ``rows`` are kept."""
        return self.layout.encode([rows.column(n) for n in (self.time, *self.kinds)])

    def column(self, name: str, words: Ints, there: Bools | None = None) -> pa.Array:
        """Return the column ``name`` of encoded rows; NULL where the mask ``there`` is False."""
        place = self.place[name]
        if there is not None:
            words = words.copy()
            words[~there, self.layout.end(place)] = NONE
        return self.layout.column(words, place).cast(arrow_type(self.kinds[name]))


class AsOfJoin:
    """The left rows and right rows of the ASOF join ``outer``."""

    def __init__(self, outer: OuterJoin) -> None:
        self.outer, self._kind = outer, outer.look_ups[0].kind
        rule = outer.nearest
        assert rule is not None
        self._rule: Nearest = rule
        self._backward = rule.side in (NearestSide.GE, NearestSide.GT)
        #: Whether the nearest right row may have the same time as the left row.
        self._inclusive = rule.side in (NearestSide.GE, NearestSide.LT)
        self._start()

    def _start(self) -> None:
        self.pool = Texts()
        keys = tuple(zip(*self._rule.keys, strict=True))
        self._left, self._right = (
            _TimedSide(columns, names, time, self.pool)
            for columns, names, time in zip(
                columns_of(self.outer), keys, self._rule.times, strict=True
            )
        )
        fields = [TupleField(self._left.kinds[name], nullable=False) for name in keys[0]]
        self._layout = TupleLayout(fields, self.pool)
        self._keys = Slots(self._layout.width)
        self._most_texts = _FEW_TEXTS

    def apply(self, tables: Sequence[pa.Table]) -> pa.Table:
        """Add weighted rows to both sides, and return the changes of the results.

        Args:
            tables: left rows and right rows, with the columns of :func:`.columns_of` and
                :data:`.WEIGHT`.

        Raises:
            ExpressionError: a condition or an output column can't be evaluated for a row. The state
                is then undefined.
        """
        left, right = (
            self._read(own, rows)
            for own, rows in zip((self._left, self._right), tables, strict=True)
        )
        slots, words, times = self._concerned(right)
        before = self._nearest(slots, words)
        self._right.rows.add(*right)
        changes = self._left.rows.add(*left, changes=True)
        came = np.flatnonzero(changes)
        after = self._nearest(
            np.concatenate([slots, left.slots[came]]), np.concatenate([words, left.words[came]])
        )
        made = results_of(
            self.outer,
            *self._combined(
                np.concatenate([words, words, left.words[came]]),
                np.concatenate([before, after]),
                np.concatenate([-times, times, changes[came]]),
            ),
        )
        self._drop_empty(np.concatenate([left.slots, right.slots]))
        if self.pool.count > self._most_texts:
            self._restore(self.dump())
        return made

    def _read(self, side: _TimedSide, table: pa.Table) -> _Timed:
        batch = one_batch(table)
        rows = Inputs(batch, side.kinds)
        known = np.ones(len(rows), np.bool_)
        for name in (*side.keys, side.time):
            valid = rows.valid(name)
            if len(valid):
                known &= valid
        slots = np.full(len(rows), _UNMATCHED if side is self._left else NONE)
        keys = self._layout.encode([rows.column(name) for name in side.keys])
        found, _ = self._keys.find(keys[known])
        slots[known] = found + 1
        for one in (self._left, self._right):
            one.rows.make_room(self._keys.room + 1)
        # A side that has no rows in a round has no weights either.
        weights = integers_of(batch.column(WEIGHT)) if len(rows) else np.empty(0, np.int64)
        return _Timed(slots, side.words(rows), weights)

    def _concerned(self, right: _Timed) -> _Timed:
        """Return the left rows whose nearest right row may change, with their net weights."""
        kept = np.flatnonzero(right.slots >= 0)
        slots, times = right.slots[kept], right.words[kept, 0]
        # Left rows beyond the next new right row are nearer to that one.
        order = np.lexsort((times, slots))
        slots, times = slots[order], times[order]
        first = np.ones(len(order), np.bool_)
        first[1:] = (slots[1:] != slots[:-1]) | (times[1:] != times[:-1])
        slots, times = slots[first], times[first]
        next_slot, next_time = (np.roll(one, -1 if self._backward else 1) for one in (slots, times))
        ahead = times < next_time if self._backward else next_time < times
        far = np.iinfo(np.int64).max if self._backward else np.iinfo(np.int64).min
        limits = np.where((next_slot == slots) & ahead, next_time, far)
        rows = self._right.rows
        ranks = rows.ranks(slots, times, inclusive=self._backward)
        known = rows.at(slots, ranks) if self._backward else self._before(slots, ranks)
        others = np.where(known >= 0, rows.words[known, 0], far)
        if self._backward:
            lows, highs = times, np.minimum(limits, others)
        else:
            lows, highs = np.maximum(limits, others), times
        nodes, places = self._left.rows.between(slots, lows, highs)
        nodes, picked = np.unique(nodes, return_index=True)
        weights = self._left.rows.sizes[nodes, _WEIGHT]
        there = weights > 0
        return _Timed(
            slots[places[picked[there]]], self._left.rows.words[nodes[there]], weights[there]
        )

    def _before(self, slots: Ints, ranks: Ints) -> Ints:
        """Return the tree node of the right row before each of ``ranks``, -1 if there is none."""
        return np.where(ranks > 0, self._right.rows.at(slots, np.maximum(ranks - 1, 0)), NONE)

    def _nearest(self, slots: Ints, words: Ints) -> Ints:
        """Return per left row 1 and its nearest right row's words; 0 first if there is none."""
        rows = self._right.rows
        ranks = rows.ranks(slots, words[:, 0], inclusive=self._inclusive)
        nodes = self._before(slots, ranks) if self._backward else rows.at(slots, ranks)
        return np.column_stack([nodes >= 0, rows.words[nodes]])

    def _combined(
        self, left: Ints, right: Ints, times: Ints
    ) -> tuple[Callable[[Column], pa.Array], Ints]:
        """Return a reader of joined rows' columns, and by how much each row's number changes."""
        there, right = right[:, 0] > 0, right[:, 1:]

        def read(column: Column) -> pa.Array:
            if column.name in self._left.kinds:
                return self._left.column(column.name, left)
            return self._right.column(column.name, right, there)

        if self._rule.within:
            mask = filter_mask(self._rule.within, read, len(times))
            there = there if mask is None else there & mask
        if self._kind is JoinKind.INNER:
            left, right, times = left[there], right[there], times[there]
            there = np.ones(len(times), np.bool_)
        return read, times

    def _drop_empty(self, touched: Ints) -> None:
        slots, _ = self._keys.distinct(touched[touched > _UNMATCHED] - 1)
        empty = self._left.rows.empty(slots + 1) & self._right.rows.empty(slots + 1)
        self._keys.drop(slots[empty])

    # --- snapshots -------------------------------------------------------------------------------

    def dump(self) -> list[pa.RecordBatch]:
        """Return the state for a checkpoint: left and right rows with their net weights."""
        slots = np.append(self._keys.all() + 1, _UNMATCHED)
        found = []
        for side in (self._left, self._right):
            nodes, *_ = side.rows.walk(slots, everything=True)
            columns = side.layout.decode(side.rows.words[nodes], 1)
            weights = pa.array(side.rows.sizes[nodes, _WEIGHT])
            names = [*side.kinds, WEIGHT]
            found.append(pa.RecordBatch.from_arrays([*columns, weights], names=names))
        return found

    @classmethod
    def load(cls, outer: OuterJoin, dumped: Sequence[pa.RecordBatch]) -> AsOfJoin:
        """Restore the ASOF join's left and right rows from a dump."""
        made = cls(outer)
        made._restore(dumped)
        return made

    def _restore(self, dumped: Sequence[pa.RecordBatch]) -> None:
        self._start()
        for side, rows in zip((self._left, self._right), dumped, strict=True):
            side.rows.add(*self._read(side, pa.Table.from_batches([rows])))
        self._most_texts = 2 * self.pool.count + _FEW_TEXTS

    @property
    def bytes(self) -> int:
        """Approximate bytes in memory of the join's left and right rows."""
        return sum(one.bytes for one in (self.pool, self._keys, self._left.rows, self._right.rows))
