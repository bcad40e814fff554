"""Maintained tables: the state of a query's post-join part, and its changes.

A table's content depends only on the multiset of the rows added, not on their order or division
into batches. This holds even for sums, averages, variances and covariances of floats, since these
are rounded only once (``sums`` names the exception).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.queries.expressions import Column, Literal, Output
from anabranch_contract.queries.outer_joins import JoinKind, LookUp, Nearest, NearestSide, OuterJoin
from anabranch_contract.queries.types import DataType, parse_type
from anabranch_contract.queries.views import (
    CHANGE,
    WEIGHT,
    AggregateFunction,
    Change,
    Frame,
    FrameUnit,
    SortKey,
    TimeWindow,
    View,
    ViewAggregate,
    Windowed,
    WindowFunction,
)
from anabranch_runtime.columns.arrow_types import arrow_type, field_type
from anabranch_runtime.tables.grouped import CopiedTable, GroupedTable
from anabranch_runtime.tables.groups import GroupReader, Groups
from anabranch_runtime.tables.inputs import Changes, Inputs, one_batch
from anabranch_runtime.tables.joins.asof import AsOfJoin
from anabranch_runtime.tables.joins.look_ups import LookUps
from anabranch_runtime.tables.rankings import RankedTable
from anabranch_runtime.tables.sums import subtract
from anabranch_runtime.tables.words import texts_allowed


class MaintainedTable:
    """The maintained table of one view.

    Args:
        view: the post-join part.
        rows: schema of the joined rows, with the columns that the view reads.
        deletes: whether rows may be deleted; without deletes, less state is kept.
        names: names of the view's columns in the rows that are added; None: the same names.
    """

    def __init__(
        self,
        view: View,
        rows: pa.Schema,
        *,
        deletes: bool = False,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.view, self._deletes = view, deletes
        self._kinds = {field.name: field_type(field) for field in rows}
        self._names = names or {name: name for name in rows.names}
        self._changes = Changes(view)
        self._table = self._made()
        self._most_texts = (0, 0)
        self._compacted()

    def apply(
        self, rows: pa.Table | pa.RecordBatch, weights: NDArray[np.int64] | None, version: int
    ) -> pa.Table:
        """Add weighted joined rows to the table, and return the changes of its rows.

        Args:
            weights: number of times that each row is inserted (negative: deleted); None: once each.
            version: version of the changes.

        Raises:
            ExpressionError: an aggregate overflows, or an expression fails. The table is unchanged.
            ValueError: a row is deleted from a table without ``deletes``.
        """
        if not rows.num_rows:
            return self._changes.nothing()
        table = self._table
        if isinstance(table, GroupedTable) and table.awaits(version):
            return table.changes(version)
        if weights is None:
            weights = np.ones(rows.num_rows, np.int64)
        elif not self._deletes and int(weights.min()) < 0:
            raise ValueError("a row is deleted from a table that only gets new rows")
        weights = np.array(weights, np.int64)
        if isinstance(table, GroupedTable):
            # When they are closed, groups may be replaced by groups with fewer columns.
            table.groups.close()
            # At least one column is read, since a batch without columns has no number of rows.
            batch = one_batch(rows.select(table.groups.columns or rows.column_names[:1]))
            return table.apply(Inputs(batch, table.groups.kinds), weights, version)
        batch = one_batch(rows.select(list(dict.fromkeys(self._names[n] for n in self._kinds))))
        changes = table.apply(Inputs(self._own(batch), self._kinds), weights, version)
        if self._many_texts(table):
            self._most_texts = texts_allowed(table.used_texts)
        if self._many_texts(table):
            # Drop texts that are not used any more, to free memory.
            self._table = self._made()
            self._table.load(table.dump())
            self._compacted()
        return changes

    def _own(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        """Return the columns of added rows under the names that they have in the view."""
        columns = [rows.column(self._names[name]) for name in self._kinds]
        return pa.RecordBatch.from_arrays(columns, names=list(self._kinds))

    def _many_texts(self, table: RankedTable) -> bool:
        count, used = table.pool.size
        return count > self._most_texts[0] or used > self._most_texts[1]

    def _compacted(self) -> None:
        if isinstance(self._table, RankedTable):
            self._most_texts = texts_allowed(self._table.pool.size)

    def _made(self) -> GroupedTable | RankedTable:
        if not self.view.grouped:
            return RankedTable(self.view, self._kinds, deletes=self._deletes)
        kind = GroupedTable if self.view.copies is None else CopiedTable
        return kind(self.view, self._kinds, self._names, deletes=self._deletes)

    @property
    def groups(self) -> Groups | None:
        """The groups that the table reads, which other tables may read, too; None: not grouped."""
        return self._table.groups if isinstance(self._table, GroupedTable) else None

    @property
    def reader(self) -> GroupReader | None:
        """The reader (this view) of :attr:`groups`."""
        return self._table if isinstance(self._table, GroupedTable) else None

    def leave(self) -> None:
        """Stop reading the groups; after that, the table can't be used any more."""
        if isinstance(self._table, GroupedTable):
            self._table.groups.leave(self._table)

    def first_changes(self, version: int) -> pa.Table:
        """Return the single row that aggregates without GROUP BY have even if there is no input."""
        if isinstance(self._table, RankedTable):
            return self._changes.nothing()
        return self._table.first_changes(version)

    def forget(self, clock: int) -> None:
        """Drop the state of groups whose time windows end at ``clock`` (microseconds) or before.
        Later changes don't depend on them; :meth:`rows` does not return them any more."""
        self._table.forget(clock)

    @property
    def forgotten(self) -> int:
        """Return the number of rows that were present when their groups were forgotten."""
        return self._table.forgotten

    def dump(self) -> list[pa.RecordBatch]:
        """Return the table's state for a checkpoint."""
        return self._table.dump()

    @classmethod
    def load(
        cls,
        view: View,
        rows: pa.Schema,
        dumped: Sequence[pa.RecordBatch],
        *,
        deletes: bool = False,
        names: Mapping[str, str] | None = None,
    ) -> MaintainedTable:
        """Restore a maintained table from a dump (:meth:`dump`)."""
        table = cls(view, rows, deletes=deletes, names=names)
        table._table.load(dumped)
        table._compacted()
        return table

    def rows(self, limit: int | None, *, counts: bool = False) -> pa.Table:
        """Return up to ``limit`` present rows in order: the view's columns, hidden grouping or
        partition columns, and numbers of ranks or copies (``views.numbers_of``); ``counts``: also
        the counts of averages (``finishing.counts_beside``)."""
        if isinstance(self._table, RankedTable):
            return self._table.rows(limit)
        return self._table.rows(limit, counts=counts)

    def __len__(self) -> int:
        return len(self._table)

    @property
    def bytes(self) -> int:
        """Return the approximate bytes of the table in memory."""
        return self._table.bytes


# --- compilation ---------------------------------------------------------------------------------

_F = AggregateFunction
#: Number of rows in the tables for which kernels are compiled; enough for hash tables to grow.
_ROWS = 200
_TYPES = {
    "k": parse_type("string"),
    "i": parse_type("bigint"),
    "d": parse_type("decimal(24,2)"),
    "f": parse_type("double"),
    "t": parse_type("timestamp"),
}
_SUM = parse_type("decimal(34,2)")
#: Aggregates whose kernels are compiled: function, column, distinct, type, second argument, option.
_AGGREGATES = (
    (_F.SUM, "i", True, _TYPES["i"], None, ""),
    (_F.SUM, "d", False, _SUM, None, ""),
    (_F.SUM, "f", False, _TYPES["f"], None, ""),
    (_F.COVAR_POP, "f", False, _TYPES["f"], "i", ""),
    (_F.MAX, "k", False, _TYPES["k"], None, ""),
    (_F.PERCENTILE_CONT, "f", False, _TYPES["f"], None, "0.5"),
    (_F.LISTAGG, "k", False, _TYPES["k"], None, ","),
    (_F.SKEWNESS, "f", False, _TYPES["f"], None, ""),
    (_F.BIT_OR, "i", False, _TYPES["i"], None, ""),
)


def warm() -> None:
    """Compile the kernels of maintained tables, or load them from the cache."""
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in _TYPES.items()])
    numbers = pa.array(np.arange(_ROWS))
    rows = pa.table([numbers.cast(field.type) for field in schema], schema=schema)
    key = Output("k", Column("", "k", _TYPES["k"]))
    aggregates = [
        ViewAggregate(f"g{n}", function, column, distinct, kind, by, option)
        for n, (function, column, distinct, kind, by, option) in enumerate(_AGGREGATES)
    ]
    shown = [Output(a.name, Column("", a.name, a.type)) for a in aggregates]
    keys: tuple[tuple[str, DataType], ...] = (("k", _TYPES["k"]),)
    grouped = View(True, keys, tuple(aggregates), (key, *shown))
    order = (SortKey(key.expr),)
    views = (
        grouped,
        replace(grouped, order=order, limit=1),
        replace(grouped, window=TimeWindow("t", 10, 10)),
        replace(grouped, window=TimeWindow("t", 10, 10, session=True)),
        View(False, (), (), (key,), order=order, limit=1, partition=(("i", _TYPES["i"]),)),
        _windowed(),
    )
    for view in views:
        for deletes in (False, True):
            table = MaintainedTable(view, schema, deletes=deletes)
            for weight in (1, 2, -3) if deletes else (1, 1):
                table.apply(rows, np.full(_ROWS, weight), 0)
            table.rows(None)
            table.forget(100)
    number = np.zeros((1, 1), np.uint64)
    subtract(number, number, np.zeros(1, np.bool_))
    _warm_look_ups()


def _windowed() -> View:
    frame = Frame(FrameUnit.RANGE, -1, 1)
    functions = [
        Windowed(f"w{n}", function, column, kind, frame=frame)
        for n, (function, column, kind) in enumerate(
            (
                (WindowFunction.SUM, "i", _TYPES["i"]),
                (WindowFunction.SUM, "d", _SUM),
                (WindowFunction.AVG, "f", _TYPES["f"]),
                (WindowFunction.MIN, "k", _TYPES["k"]),
            )
        )
    ]
    shown = tuple(Output(one.name, Column("", one.name, one.type)) for one in functions)
    order = (SortKey(Column("", "i", _TYPES["i"])),)
    return View(False, (), (), shown, order=order, windowed=tuple(functions))


def _warm_look_ups() -> None:
    left, right = ("k", _TYPES["k"]), ("i", _TYPES["i"])
    shown = tuple(Output(name, Column("", name, kind)) for name, kind in (left, right))
    change = Output(CHANGE, Literal(str(Change.INSERT), _TYPES["k"]))
    look_ups = (LookUp(JoinKind.LEFT, "", (right,)),)
    outer = OuterJoin(JoinKind.LEFT, (left,), (), "", (*shown, change), look_ups, kept=True)
    made, texts = LookUps(outer), pa.array(["a", "b"])
    for weight in (1, -1):
        weights = pa.array([weight] * 2, pa.int64())
        rows = pa.table({"k": texts, WEIGHT: weights})
        made.apply([rows, rows.append_column("i", pa.array([1, 2], pa.int64()))])
    _warm_asof(outer)


def _warm_asof(outer: OuterJoin) -> None:
    columns = (("k", _TYPES["k"]), ("i", _TYPES["i"]))
    rule = Nearest((("k", "rk"),), ("i", "ri"), NearestSide.GE)
    right = tuple((f"r{name}", kind) for name, kind in columns)
    look_ups = (LookUp(JoinKind.LEFT, "", right, nearest=rule),)
    made = AsOfJoin(replace(outer, left=columns, look_ups=look_ups))
    for weight in (1, -1):
        weights = pa.array([weight] * 2, pa.int64())
        numbers, texts = pa.array([1, 2], pa.int64()), pa.array(["a", "b"])
        made.apply([
            pa.table({"k": texts, "i": numbers, WEIGHT: weights}),
            pa.table({"rk": texts, "ri": numbers, WEIGHT: weights}),
        ])  # fmt: skip
        made.dump()


if __name__ == "__main__":
    # Called at installation, so that the process of tables need not compile the kernels.
    warm()
