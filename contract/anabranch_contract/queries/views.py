"""The post-join part of a query: aggregates, HAVING, the SELECT list, ORDER BY, LIMIT.

A query with a view is planned and run as its join, whose results (*joined rows*) have the columns
that the view reads and no others. A view is a table that follows from all joined rows so far; it is
maintained, and each change of a row is an upsert or a delete by the row's *identity*: the columns
grouped by, or the rank where nothing is grouped.

Expressions over aggregates have columns with an empty alias: keys and aggregates by their names,
or the columns of joined rows where nothing is grouped.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.codec import Row
from anabranch_contract.queries.expressions import Column, Expr, Output
from anabranch_contract.queries.types import DataType, TypeKind

#: Columns of a view's changes beside its own: the kind of change, and its version.
CHANGE, VERSION = "anabranch_change", "anabranch_version"
#: The identity of a row where nothing is grouped.
RANK = "anabranch_rank"
#: The two columns of a time window that is grouped by.
WINDOW_START, WINDOW_END = "window_start", "window_end"
_TIMESTAMP = DataType(TypeKind.TIMESTAMP)


class Change(StrEnum):
    """The kind of a change of a row."""

    UPSERT = "upsert"
    DELETE = "delete"


class AggregateFunction(StrEnum):
    """The aggregate functions."""

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
    """An aggregate of the joined rows' ``column`` (None: of rows), called ``name``."""

    name: str
    function: AggregateFunction
    column: str | None
    distinct: bool
    type: DataType


class Total(Row, frozen=True):
    """An aggregate of all joined rows, from that of the groups: a sum of sums, a sum of counts, the
    least of the least. HAVING does not matter for it.
    """

    name: str
    aggregate: str
    function: AggregateFunction
    type: DataType


class TimeWindow(Row, frozen=True):
    """Windows of ``length`` that begin every ``slide`` (microseconds), ``start`` after the epoch's
    multiples of it; a row is in each that its ``column`` falls into, as in Spark.
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
        grouped: whether joined rows are grouped; if not, they are ordered and limited only.
        keys: (column of the joined rows, type) that are grouped by, beside ``window``.
        having: what a group must satisfy.
        order: how rows are ranked; ties are broken by identity, then by all columns.
        limit: how many rows there are at most, after ``offset``; None: all.
        totals: what expressions may read beside keys and aggregates, the same for all groups.
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
        """Whether a change of one group may change the shown rows of others."""
        return self.limit is not None or bool(self.totals)

    @property
    def group_keys(self) -> tuple[tuple[str, DataType], ...]:
        """All columns of a group's identity; none where all rows are one group, or none is."""
        if self.window is None:
            return self.keys
        return (*self.keys, (WINDOW_START, _TIMESTAMP), (WINDOW_END, _TIMESTAMP))

    @property
    def hidden(self) -> tuple[Output, ...]:
        """Identities that the SELECT list does not show by themselves."""
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
        """The columns that identify the row of a change; none: there is one row."""
        if not self.grouped:
            return (RANK,)
        names = {o.expr: o.name for o in reversed((*self.projection, *self.hidden))}
        return tuple(names[Column("", name, kind)] for name, kind in self.group_keys)


def change_columns(view: View) -> tuple[tuple[str, DataType], ...]:
    """(name, type) of a change: the row's columns, hidden identities, the kind of change, and the
    version.
    """
    rank = () if view.grouped else ((RANK, DataType(TypeKind.BIGINT)),)
    return (
        *((o.name, o.expr.type) for o in (*view.projection, *view.hidden)),
        *rank,
        (CHANGE, DataType(TypeKind.STRING)),
        (VERSION, DataType(TypeKind.BIGINT)),
    )
