"""The post-join part of a query: aggregates, HAVING, the SELECT list, ORDER BY, LIMIT.

Planner and tasks handle a query with a view as its join, whose results (*joined rows*) have exactly
the columns that the view reads. A view is a table derived from all joined rows so far and
maintained incrementally: each change of a row is an upsert or a delete by the row's *identity*, the
grouping columns, or without grouping the rank.

Columns in a view's expressions have an empty alias. They are keys and aggregates by name, or
without grouping the columns of joined rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.codec import Row
from anabranch_contract.queries.expressions import Column, Expr, Output
from anabranch_contract.queries.types import DataType, TypeKind

#: Additional columns of a view's changes: the kind of change, and the view's version.
CHANGE, VERSION = "anabranch_change", "anabranch_version"
#: Column that identifies a row of a view without grouping: its rank.
RANK = "anabranch_rank"
#: The two grouping columns of a time window.
WINDOW_START, WINDOW_END = "window_start", "window_end"
_TIMESTAMP = DataType(TypeKind.TIMESTAMP)


class Change(StrEnum):
    """Kind of a change of a view's row: upsert or delete."""

    UPSERT = "upsert"
    DELETE = "delete"


class AggregateFunction(StrEnum):
    """Aggregate functions that views support."""

    COUNT = "count"
    SUM = "sum"
    AVG = "avg"
    MIN = "min"
    MAX = "max"
    STDDEV_SAMP = "stddev_samp"
    STDDEV_POP = "stddev_pop"
    VAR_SAMP = "var_samp"
    VAR_POP = "var_pop"


class ViewAggregate(Row, frozen=True):
    """The aggregate ``name`` over the joined rows' ``column`` (None: over the rows)."""

    name: str
    function: AggregateFunction
    column: str | None
    distinct: bool
    type: DataType


class Total(Row, frozen=True):
    """An aggregate over all joined rows, computed from the groups' aggregates: a sum of sums, a sum
    of counts, the minimum of minima. Groups excluded by HAVING count as well.
    """

    name: str
    aggregate: str
    function: AggregateFunction
    type: DataType


class TimeWindow(Row, frozen=True):
    """Time windows as in Spark, in microseconds: they are ``length`` long and begin ``start`` after
    every multiple of ``slide`` since 1970. A row is in every window that contains its ``column``.
    """

    column: str
    length: int
    slide: int
    start: int = 0


class SortKey(Row, frozen=True):
    """One entry of ORDER BY."""

    expr: Expr
    descending: bool = False
    nulls_first: bool = True


@dataclass(frozen=True, slots=True)
class View:
    """A maintained table over joined rows.

    Attributes:
        grouped: whether joined rows are grouped; if not, they are only ordered and limited.
        keys: grouping columns of the joined rows as (name, type), without ``window``.
        having: condition that a group must satisfy.
        order: sort keys; ties are broken by identity, then by all columns.
        limit: maximum number of rows after the first ``offset`` rows; None: all.
        totals: aggregates over all groups, which expressions may read besides keys and aggregates.
    """

    grouped: bool
    keys: tuple[tuple[str, DataType], ...]
    aggregates: tuple[ViewAggregate, ...]
    projection: tuple[Output, ...]
    window: TimeWindow | None = None
    having: Expr | None = None
    order: tuple[SortKey, ...] = ()
    limit: int | None = None
    offset: int = 0
    totals: tuple[Total, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether a change of one group may change rows of other groups (LIMIT, totals)."""
        return self.limit is not None or bool(self.totals)

    @property
    def group_keys(self) -> tuple[tuple[str, DataType], ...]:
        """All grouping columns; empty without grouping, or if all rows form one group."""
        if self.window is None:
            return self.keys
        return (*self.keys, (WINDOW_START, _TIMESTAMP), (WINDOW_END, _TIMESTAMP))

    @property
    def hidden(self) -> tuple[Output, ...]:
        """Grouping columns that the SELECT list lacks, with unique names."""
        shown = {o.expr for o in self.projection}
        keys = (Column("", name, kind) for name, kind in self.group_keys)
        taken = {o.name.lower() for o in self.projection}
        found = []
        for key in keys:
            if key not in shown:
                name = f"anabranch_{key.name}"
                while name in taken:
                    name += "_"
                taken.add(name)
                found.append(Output(name, key))
        return tuple(found)

    @property
    def identity(self) -> tuple[str, ...]:
        """The columns that identify a changed row; empty: the view has one row only."""
        if not self.grouped:
            return (RANK,)
        names = {o.expr: o.name for o in reversed((*self.projection, *self.hidden))}
        return tuple(names[Column("", name, kind)] for name, kind in self.group_keys)


def change_columns(view: View) -> tuple[tuple[str, DataType], ...]:
    """Return (name, type) of a change's columns: the view's, hidden grouping columns, rank, kind of
    change, and version.
    """
    rank = () if view.grouped else ((RANK, DataType(TypeKind.BIGINT)),)
    return (
        *((o.name, o.expr.type) for o in (*view.projection, *view.hidden)),
        *rank,
        (CHANGE, DataType(TypeKind.STRING)),
        (VERSION, DataType(TypeKind.BIGINT)),
    )
