"""Outer, semi and anti joins between streams (``contract.queries.outer_joins``) from *left rows*
and *pairs* (left row and matching right row).

A left row is *decided* (whether it has a match) once the watermark of the right input has passed
its *deadline*, the latest event time of a match. Left rows and pairs with equal left columns form a
group, which is kept until its *end*, the deadline, and then has its results, once.

The deadline may have passed before a left row is complete. Then the row's batch finds all its pairs
and decides it at once, since the right input may never have another row. If a later catch-up
computes such a row (after load shedding), another batch may find its pairs. Then the group ends at
the floor (``sinks.outer_rows``), which is equal for the row and its pairs.

Left rows of different batches are in different groups, since load shedding may have withheld the
pairs of only one of them (``views.undecided``).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

import numpy as np
import pyarrow as pa

from anabranch_contract.protocol.activations import LeftRows
from anabranch_contract.queries.expressions import Column
from anabranch_contract.queries.outer_joins import JoinKind, OuterJoin
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_runtime.columns.arrays import Bools, Floats, Ints
from anabranch_runtime.columns.arrow_types import arrow_type, schema_of
from anabranch_runtime.expressions.evaluate import evaluate
from anabranch_runtime.sinks.outer_rows import BATCH, FLOOR
from anabranch_runtime.tables.inputs import Inputs, one_batch
from anabranch_runtime.tables.ordered import Ordered
from anabranch_runtime.tables.slots import Slots
from anabranch_runtime.tables.words import Texts, TupleField, TupleLayout, grown, integers_of

#: Least and greatest event time in microseconds since 1970: 126,752 years from then.
FIRST, LAST = -4 * 10**18, 4 * 10**18
_BIGINT = DataType(TypeKind.BIGINT)
_NUMBER = TupleField(_BIGINT, nullable=False)
_NEVER = int(np.iinfo(np.int64).max)
#: Columns of a group's state: number of left rows, number of pairs.
_LEFT, _PAIRS = 0, 1


class Withheld(Protocol):
    """Left rows whose pairs may have been withheld by load shedding (``views.undecided``)."""

    def among(
        self, rows: int, column: Callable[[str], pa.Array], came: Ints, deadlines: Ints
    ) -> Bools:
        """Return the mask of undecided left rows; ``came``: batch of a row's completion."""
        ...

    def chances(self, rows: int, came: Ints, deadlines: Ints) -> Floats:
        """Return, per left row, the probability that it is not undecided."""
        ...


class DecidedResults(NamedTuple):
    """Results of a join, and the counts of the left rows that have been decided."""

    rows: pa.Table
    left: LeftRows


class _Groups(NamedTuple):
    """Groups of left rows: left columns, batch in which the last member arrived, counts."""

    columns: list[pa.Array]
    batches: Ints
    state: Ints


class DecidedRows:
    """The left rows of an outer join that are not decided yet, and their pairs.

    Args:
        outer: the join.
        columns: (name, type) of the columns of pairs, which include the left columns.
    """

    def __init__(self, outer: OuterJoin, columns: Sequence[tuple[str, DataType]]) -> None:
        self.outer = outer
        self._columns = tuple(columns)
        self._kinds = dict([*columns, (BATCH, _BIGINT), (FLOOR, DataType(TypeKind.TIMESTAMP))])
        self._schema = schema_of(outer.projection)
        self._start()

    def _start(self) -> None:
        self.pool = Texts()
        fields = [TupleField(kind) for _, kind in self.outer.left]
        #: Keys of groups: left columns, batch, end.
        self._keys = TupleLayout([*fields, _NUMBER, _NUMBER], self.pool)
        self._slots = Slots(self._keys.width)
        self._state = np.zeros((self._slots.room, 2), np.int64)
        self._by_end = Ordered(TupleLayout([_NUMBER, _NUMBER], self.pool))
        self._most_texts = 4096

    def __len__(self) -> int:
        return len(self._slots)

    def apply(
        self,
        left: pa.Table | pa.RecordBatch,
        pairs: pa.Table | pa.RecordBatch,
        clock: int | None,
        batch: int,
        withheld: Withheld | None = None,
    ) -> DecidedResults:
        """Add left rows and pairs; return the results: pairs (of a left join), and left rows that
        are decided by the clock.

        Args:
            left, pairs: rows with the columns of ``sinks.outer_rows``.
            clock: watermark of the right input in microseconds; None: no watermark yet.
            batch: number of the batch that has computed the rows.

        Raises:
            ExpressionError: an output column fails on a row. Nothing is changed.
        """
        inputs = [Inputs(one_batch(rows), self._kinds) for rows in (left, pairs)]
        at_once = []
        slots, kinds, all_fresh = [], [], []
        late_rows = []
        for number, rows in enumerate(inputs):
            deadlines, known = self._deadlines(rows)
            floors, has_floor = _numbers(rows, FLOOR)
            late = known & has_floor & (deadlines < floors) & (rows.integers(BATCH) == batch)
            ends = np.maximum(np.where(known, deadlines, FIRST), np.where(has_floor, floors, FIRST))
            ends = np.clip(ends, FIRST, LAST)
            words = self._words(rows, ends)
            late_rows.append(words[late])
            found, fresh = self._slots.find(words[~late])
            slots.append(found)
            all_fresh.append(fresh)
            kinds.append(np.full(len(found), number))
            at_once.append(np.full(int(late.sum()), number))
        if len(self._state) < self._slots.room:
            self._state = grown(self._state, self._slots.room)
        fresh = np.concatenate(all_fresh)
        self._state[fresh] = 0
        where, which = np.concatenate(slots), np.concatenate(kinds)
        np.add.at(self._state, (where, which), 1)
        self._note(fresh, 1)
        over = self._over(clock)
        try:
            groups = self._joined(over, np.concatenate(late_rows), np.concatenate(at_once))
            groups, counts = self._certain(groups, withheld)
            rows = self._results(groups, inputs[1])
        except BaseException:
            np.add.at(self._state, (where, which), -1)
            self._note(fresh, -1)
            self._slots.drop(fresh)
            raise
        self._note(over, -1)
        self._slots.drop(over)
        if self.pool.count > self._most_texts:
            self._restore(self.dump())
        return DecidedResults(rows, counts)

    # --- groups ----------------------------------------------------------------------------------

    def _deadlines(self, rows: Inputs) -> tuple[Ints, Bools]:
        """Return, per left row, the latest event time of a match, and the mask of rows with one."""
        found = np.full(len(rows), _NEVER)
        some = np.zeros(len(rows), np.bool_)
        for name, bound in self.outer.times:
            times, known = _numbers(rows, name)
            # Bounds are clipped to the range of times, so that sums do not overflow.
            limits = times + max(FIRST // 2, min(bound, LAST // 2))
            found = np.where(known, np.minimum(found, limits), found)
            some |= known
        return found, some

    def _words(self, rows: Inputs, ends: Ints) -> Ints:
        columns = [rows.column(name) for name, _ in self.outer.left]
        return self._keys.encode([*columns, rows.column(BATCH), pa.array(ends)])

    def _note(self, slots: Ints, weight: int) -> None:
        """Add groups to the index by end (``weight`` 1), or remove them from it (-1)."""
        tuples = np.column_stack([self._slots.words[slots, -1], slots])
        self._by_end.add(np.zeros(len(slots), np.int64), tuples, np.full(len(slots), weight))

    def _over(self, clock: int | None) -> Ints:
        """Return the groups that end before ``clock``; at ``clock`` itself, a match may arrive."""
        if clock is None:
            return np.empty(0, np.int64)
        zero = np.zeros(1, np.int64)
        nodes, _ = self._by_end.between(zero, zero - _NEVER, zero + (clock - 1))
        slots: Ints = self._by_end.words[nodes, 1]
        return slots

    def _joined(self, over: Ints, late: Ints, which: Ints) -> _Groups:
        """Return the ended groups ``over``, and groups of the rows ``late``, which are decided at
        once; ``which``: :data:`_LEFT` or :data:`_PAIRS` for each row."""
        own = Slots(self._keys.width)
        # Rows that are decided at once are grouped by left columns and batch, whatever their ends.
        late = late.copy()
        late[:, -1] = 0
        slots, _ = own.find(late)
        state = np.zeros((len(own), 2), np.int64)
        np.add.at(state, (slots, which), 1)
        words = np.concatenate([self._slots.words[over], own.words[: len(own)]])
        columns = self._keys.decode(words, 0, len(self.outer.left))
        return _Groups(columns, words[:, -2], np.concatenate([self._state[over], state]))

    def _certain(self, groups: _Groups, withheld: Withheld | None) -> tuple[_Groups, LeftRows]:
        """Return the groups whose pairs can't have been withheld, and the counts of left rows."""
        kind = self.outer.kind
        times, pairs = groups.state[:, _LEFT], groups.state[:, _PAIRS]
        given = np.where((pairs > 0) == (kind is JoinKind.SEMI), times, 0)
        if withheld is None or not len(times):
            return groups, LeftRows(kind, int(given.sum()))
        names = {name: n for n, (name, _) in enumerate(self.outer.left)}
        schema = [(name, k) for name, k in self._kinds.items() if name in names]
        arrays = [groups.columns[names[name]] for name, _ in schema]
        rows = Inputs(pa.RecordBatch.from_arrays(arrays, names=[n for n, _ in schema]), self._kinds)
        deadlines, _ = self._deadlines(rows)
        undecided = withheld.among(len(times), rows.column, groups.batches, deadlines)
        given[undecided] = 0
        certain = given > 0
        chances = withheld.chances(int(certain.sum()), groups.batches[certain], deadlines[certain])
        counts = LeftRows(
            kind,
            int(given.sum()),
            float((given[certain] * (1 / chances - 1)).sum()),
            int(times[undecided].sum()),
        )
        kept = np.flatnonzero(~undecided)
        columns = [c.take(pa.array(kept)) for c in groups.columns]
        return _Groups(columns, groups.batches[kept], groups.state[kept]), counts

    def _results(self, groups: _Groups, pairs: Inputs) -> pa.Table:
        outer = self.outer
        times = groups.state[:, _LEFT]
        matched = groups.state[:, _PAIRS] > 0
        times = np.where(matched == (outer.kind is JoinKind.SEMI), times, 0)
        picked = pa.array(np.repeat(np.arange(len(times)), times))
        names = {name: n for n, (name, _) in enumerate(outer.left)}
        length = len(picked)

        def lonely(column: Column) -> pa.Array:
            place = names.get(column.name)
            if place is None:
                return pa.nulls(length, arrow_type(column.type))
            return groups.columns[place].take(picked)

        parts = [
            pa.Table.from_arrays(
                [evaluate(o.expr, lonely, length) for o in outer.projection], schema=self._schema
            )
        ]
        if outer.kind is JoinKind.LEFT:
            found = [
                evaluate(o.expr, lambda c: pairs.column(c.name), len(pairs))
                for o in outer.projection
            ]
            parts.insert(0, pa.Table.from_arrays(found, schema=self._schema))
        return pa.concat_tables(parts)

    # --- snapshots -------------------------------------------------------------------------------

    def dump(self) -> list[pa.RecordBatch]:
        """Return the state for a checkpoint: the groups of left rows that are not decided."""
        slots = self._slots.all()
        columns = self._keys.decode(self._slots.words[slots])
        columns += [pa.array(self._state[slots, n]) for n in (_LEFT, _PAIRS)]
        return [pa.RecordBatch.from_arrays(columns, names=[f"v{n}" for n in range(len(columns))])]

    @classmethod
    def load(
        cls,
        outer: OuterJoin,
        columns: Sequence[tuple[str, DataType]],
        dumped: Sequence[pa.RecordBatch],
    ) -> DecidedRows:
        """Restore left rows that are not decided, and their pairs, from a dump."""
        made = cls(outer, columns)
        made._restore(dumped)
        return made

    def _restore(self, dumped: Sequence[pa.RecordBatch]) -> None:
        self._start()
        *columns, left, pairs = dumped[0].columns
        slots, fresh = self._slots.find(self._keys.encode(columns))
        self._state = grown(self._state, self._slots.room)
        self._state[slots, _LEFT] = integers_of(left)
        self._state[slots, _PAIRS] = integers_of(pairs)
        self._note(fresh, 1)
        self._most_texts = 2 * self.pool.count + 4096

    @property
    def bytes(self) -> int:
        """Return the approximate bytes of left rows and pairs in memory."""
        others = (self.pool, self._slots, self._by_end)
        return self._state.nbytes + sum(o.bytes for o in others)


def _numbers(rows: Inputs, name: str) -> tuple[Ints, Bools]:
    """Return a column of times in microseconds, and the mask of rows that have one."""
    column = rows.column(name)
    valid = rows.valid(name)
    return integers_of(column), valid if len(valid) else np.ones(len(column), np.bool_)
