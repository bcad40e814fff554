"""Exact column lineage of a query, from its normal form. Pure functions.

*Direct* lineage: source columns whose values enter a result column. *Indirect* lineage: source
columns that determine which rows exist: join keys, filters, grouping keys, sort keys.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from anabranch_contract.queries.expressions import Column, Expr, Output, columns
from anabranch_contract.queries.joins import JoinQuery
from anabranch_contract.queries.views import WINDOW_END, WINDOW_START, View


class How(StrEnum):
    """Use of a source column by a result column, as OpenLineage's subtype. If a column has several
    direct uses, the one that is listed last here counts."""

    IDENTITY = "IDENTITY"
    TRANSFORMATION = "TRANSFORMATION"
    AGGREGATION = "AGGREGATION"
    JOIN = "JOIN"
    FILTER = "FILTER"
    GROUP_BY = "GROUP_BY"
    SORT = "SORT"


_DIRECT = (How.IDENTITY, How.TRANSFORMATION, How.AGGREGATION)


@dataclass(frozen=True, slots=True, order=True)
class Origin:
    """A column of a stream, and its use in the query."""

    stream: str
    column: str
    how: How

    @property
    def is_direct(self) -> bool:
        """Whether the column's value enters the result column."""
        return self.how in _DIRECT


#: Column at one level of a query (join, view) -> its source columns.
_Layer = Mapping[str, frozenset[Origin]]


def direct(query: JoinQuery) -> dict[str, tuple[Origin, ...]]:
    """Return result column -> the stream columns from which its value is computed, sorted; empty
    for a count of rows and for a constant."""
    return {name: tuple(sorted(found)) for name, found in _shown(query).items()}


def indirect(query: JoinQuery) -> tuple[Origin, ...]:
    """Return the stream columns that determine which result rows exist, sorted."""
    found: set[Origin] = set()
    for part in query.planned:
        stream_of = _streams(part)
        for equality in part.predicates:
            for side in (equality.left, equality.right):
                found |= _attribute(part, stream_of[side.label], side.attribute, How.JOIN)
        for relation in part.relations:
            read = [c for expr in relation.filter for c in columns(expr)]
            found |= {Origin(str(relation.stream), c.name, How.FILTER) for c in read}
        own = (expr for one in part.expansions for expr in one.conditions)
        for expr in (*part.residuals, *own):
            found |= {Origin(o.stream, o.column, How.FILTER) for o in _read(part, expr)}
    if query.outer is not None:
        below = {o.name: _made(part, o) for part in query.planned for o in part.projection}
        for column in (c for expr in query.outer.where for c in columns(expr)):
            found |= {Origin(o.stream, o.column, How.FILTER) for o in below[column.name]}
        for column in (c for expr in query.outer.conditions for c in columns(expr)):
            found |= {Origin(o.stream, o.column, How.JOIN) for o in below[column.name]}
    if query.view is not None:
        found |= _of_view(query.view, _below_view(query))
    return tuple(sorted(found))


def _of_view(view: View, below: _Layer) -> set[Origin]:
    """Yield the grouping, filter and sort columns of a view."""
    above = _grouped(view, below)
    keys = [name for name, _ in view.keys]
    keys += [name for name, _ in view.partition]
    keys += [view.window.column] if view.window is not None else []
    found = {Origin(o.stream, o.column, How.GROUP_BY) for key in keys for o in below.get(key, ())}
    moments = [o for limit in view.limits for o in below.get(limit.column, ())]
    found |= {Origin(o.stream, o.column, How.FILTER) for o in moments}
    ways: list[tuple[How, Iterable[Expr]]] = [
        (How.FILTER, [expr for expr in (view.having, view.copies) if expr is not None]),
        (How.SORT, [sort.expr for sort in view.order]),
    ]
    for how, exprs in ways:
        read = (c.name for expr in exprs for c in columns(expr))
        found |= {Origin(o.stream, o.column, how) for name in read for o in above.get(name, ())}
    return found


def _shown(query: JoinQuery) -> _Layer:
    below = _below_view(query)
    if query.view is None:
        return below
    return _project(query.view.projection, _grouped(query.view, below))


def _below_view(query: JoinQuery) -> _Layer:
    """Return the source columns of a view's input columns; without a view, of the query's result
    columns."""
    joined: dict[str, frozenset[Origin]] = {}
    for part in query.planned:
        for output in part.projection:
            joined[output.name] = joined.get(output.name, frozenset()) | _made(part, output)
    return joined if query.outer is None else _project(query.outer.projection, joined)


def _grouped(view: View, below: _Layer) -> dict[str, frozenset[Origin]]:
    """Map the group keys, window bounds and aggregates of a view to their source columns."""
    if not view.grouped:
        beside = {}
        for row in view.windowed:
            default = [] if row.default is None else columns(row.default)
            names = (row.column or "", *(c.name for c in default))
            read = [o for name in names for o in below.get(name, ())]
            beside[row.name] = _as(How.TRANSFORMATION, read)
        return {**below, **beside}
    found = {name: below.get(name, frozenset()) for name, _ in view.keys}
    if view.window is not None:
        moment = _as(How.TRANSFORMATION, below.get(view.window.column, frozenset()))
        found |= {WINDOW_START: moment, WINDOW_END: moment}
    for one in view.aggregates:
        read = [o for name in one.reads for o in below.get(name, ())]
        found[one.name] = _as(How.AGGREGATION, read)
    for total in view.totals:
        found[total.name] = found.get(total.aggregate, frozenset())
    return found


def _project(outputs: Iterable[Output], below: _Layer) -> dict[str, frozenset[Origin]]:
    found = {}
    for output in outputs:
        read = [o for c in columns(output.expr) for o in below.get(c.name, ())]
        plain = isinstance(output.expr, Column)
        found[output.name] = frozenset(read) if plain else _as(How.TRANSFORMATION, read)
    return found


def _made(query: JoinQuery, output: Output) -> frozenset[Origin]:
    """Return the source columns of an output column of a join."""
    read = _read(query, output.expr)
    plain = isinstance(query.unexpanded(output.expr), Column)
    return read if plain else _as(How.TRANSFORMATION, read)


def _read(query: JoinQuery, expr: Expr) -> frozenset[Origin]:
    stream_of = _streams(query)
    found: set[Origin] = set()
    for column in columns(query.unexpanded(expr)):
        found |= _attribute(query, stream_of[column.alias], column.name, How.IDENTITY)
    return frozenset(found)


def _attribute(query: JoinQuery, stream: str, name: str, how: How) -> set[Origin]:
    """Return a stream's column or, for a derived join key, the columns in the key's expression."""
    for owner, text, expr in query.derived:
        if (str(owner), text) == (stream, name):
            return {Origin(stream, c.name, how) for c in columns(expr)}
    return {Origin(stream, name, how)}


def _streams(query: JoinQuery) -> dict[str, str]:
    """Return label (canonical alias) -> name of its stream."""
    return {str(label): str(query.relation_of(label).stream) for label in query.labels}


def _as(how: How, origins: Iterable[Origin]) -> frozenset[Origin]:
    """Return ``origins``, each with the later one (in :class:`How`) of its use and ``how``."""
    return frozenset(
        Origin(o.stream, o.column, max(o.how, how, key=_DIRECT.index)) for o in origins
    )
