"""Subqueries in WHERE as semi and anti joins: ``[NOT] EXISTS (SELECT ...)``, ``[NOT] IN``.

``x IN (SELECT y ...)`` is a semi join with ``x = y`` as a further condition: where the comparison
is unknown, WHERE keeps no row either. ``x NOT IN (...)`` keeps no row at all once a ``y`` is NULL,
and one with NULL in ``x`` only if there is no ``y``. So it is an anti join if conditions exclude
NULL in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import reduce

from sqlglot import exp

from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.binding.typecheck import operands
from anabranch_planner.sql.scope import find_stream
from anabranch_planner.sql.syntax import describe, side_of
from anabranch_planner.sql.unresolved import (
    FromEntry,
    Node,
    OuterSide,
    Unresolved,
    at,
    unsupported,
)


def with_existence(query: Unresolved, streams: Mapping[str, Stream]) -> Unresolved:
    """``query`` with ``[NOT] EXISTS`` and ``[NOT] IN`` over a stream or table in WHERE rewritten as
    semi and anti joins.

    Raises:
        QueryError: ``unsupported-sql``, ``NOT IN`` where NULLs are not excluded.
    """
    sides, conditions = list(query.outer), []
    for condition in query.conditions:
        if not isinstance(condition.node.parent, exp.Where):
            conditions.append(condition)
            continue
        parts = operands(condition.node, exp.And)
        kept = []
        for part in parts:
            names = {_called(s) for s in (*query.sources, *(side.source for side in sides))}
            side = _existence(part, query, parts, streams, names)
            if side is None:
                kept.append(part)
            else:
                sides.append(side)
        if len(kept) == len(parts):
            conditions.append(condition)
        elif kept:
            both = reduce(lambda a, b: exp.And(this=a, expression=b), (k.copy() for k in kept))
            conditions.append(replace(condition, node=exp.Where(this=both).this))
    if len(sides) == len(query.outer):
        return query
    return replace(query, outer=tuple(sides), conditions=tuple(conditions))


def _called(source: FromEntry) -> str:
    return (source.alias or "").lower()


def _existence(
    node: Node,
    query: Unresolved,
    conjuncts: list[Node],
    streams: Mapping[str, Stream],
    taken: set[str],
) -> OuterSide | None:
    """A conjunct of WHERE as a semi or anti join; None: it is none, or reads a query of WITH.

    Args:
        conjuncts: all conjuncts of WHERE. ``taken``: aliases of the statement, in lower case.
    """
    kind, whole = JoinKind.SEMI, node
    while isinstance(node, exp.Not | exp.Paren):
        if isinstance(node, exp.Not):
            kind = JoinKind.ANTI if kind is JoinKind.SEMI else JoinKind.SEMI
        node = node.this
    given = node.args.get("query") if isinstance(node, exp.In) else None
    inside = node.this if isinstance(node, exp.Exists) else given
    if inside is None:
        return None
    select = inside.this if isinstance(inside, exp.Subquery) else inside
    side = side_of(select, kind)
    if side is None or not isinstance(side.source.of, str):
        return None
    name, clause = side.source.of.lower(), node.root().find(exp.With)
    if clause is not None and name in {str(cte.alias).lower() for cte in clause.expressions}:
        return None
    with at(side.source.node):
        stream = find_stream(side.source.of, streams)
    own, alias = _called(side.source), side.source.alias
    while alias is not None and alias.lower() in taken:
        alias = f"{alias}_"
    on = None if side.on is None else _qualified(side.on, own, alias, stream)
    if given is not None:
        tested = node.this.expressions if isinstance(node.this, exp.Tuple) else [node.this]
        if len(tested) != len(select.expressions) or select.find(exp.Star) is not None:
            with at(whole):
                raise unsupported(
                    f"{describe(whole)}, whose subquery shows another number of columns",
                    "select one column for each that is compared",
                )
        inner = [] if on is None else operands(on, exp.And)
        for mine, shown in zip(tested, select.expressions, strict=True):
            value = _of_query(mine, query, streams)
            other = _qualified(shown.unalias(), own, alias, stream)
            if kind is JoinKind.ANTI:
                _exclude_nulls(whole, ((value, conjuncts), (other, inner)), query, streams)
            equal = exp.EQ(this=value, expression=other)
            on = equal if on is None else exp.And(this=on, expression=equal)
    return OuterSide(kind, replace(side.source, alias=alias), on)


def _qualified(node: Node, own: str, alias: str | None, stream: Stream) -> Node:
    """A copy of ``node`` in which columns of the subquery's ``stream`` have its ``alias``. A name
    without alias is of the subquery, if the stream has it.
    """
    found = exp.Paren(this=node.copy())
    names = {column.lower() for column, _ in stream.columns}
    for column in found.find_all(exp.Column):
        mine = column.table.lower() == own if column.table else column.name.lower() in names
        if mine:
            column.set("table", exp.to_identifier(alias))
    inside: Node = found.this
    return inside.copy()


def _of_query(node: Node, query: Unresolved, streams: Mapping[str, Stream]) -> Node:
    """A copy of ``node`` in which columns of the statement's streams have their alias."""
    found = exp.Paren(this=node.copy())
    for column in found.find_all(exp.Column):
        if not column.table and (alias := next(_holders(column.name, query, streams), None)):
            column.set("table", exp.to_identifier(alias))
    inside: Node = found.this
    return inside.copy()


def _holders(name: str, query: Unresolved, streams: Mapping[str, Stream]) -> Iterator[str]:
    """The aliases of streams in FROM that have a column ``name``."""
    lower = {key.lower(): stream for key, stream in streams.items()}
    for source in (*query.sources, *(side.source for side in query.outer)):
        stream = lower.get(source.of.lower()) if isinstance(source.of, str) else None
        known = {column.lower() for column, _ in stream.columns} if stream is not None else set()
        if source.alias is not None and name.lower() in known:
            yield source.alias


def _exclude_nulls(
    node: Node,
    sides: tuple[tuple[Node, list[Node]], ...],
    query: Unresolved,
    streams: Mapping[str, Stream],
) -> None:
    """Refuse ``NOT IN`` unless ``IS NOT NULL`` stands among the conjuncts of both sides."""
    for value, conjuncts in sides:
        tested = [
            _of_query(part.this.this, query, streams)
            for part in conjuncts
            if isinstance(part, exp.Not)
            and isinstance(part.this, exp.Is)
            and isinstance(part.this.expression, exp.Null)
        ]
        if value not in tested and not isinstance(value, exp.Literal):
            with at(node):
                raise unsupported(
                    f"NOT IN a subquery where {describe(value)} may be NULL",
                    "write NOT EXISTS with an equality, or add IS NOT NULL for both of its sides",
                )
