"""Subqueries correlated by conditions that are not equalities.

``SELECT max(b.w) FROM b WHERE b.k = a.k AND b.w < a.v`` is joined with the outer query's distinct
values (``a.k``, ``a.v``), and correlated by equalities with these values instead. Because values
are compared by ``=``, a correlating condition must not be true for a NULL value. In ``b.w <
coalesce(a.v, 0)`` the whole right side counts as the value.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from sqlglot import exp

from anabranch_planner.sql.unresolved import (
    SUBQUERY,
    Condition,
    FromEntry,
    Node,
    PostJoin,
    SelectItem,
    at,
    describe,
    operands,
    unsupported,
)
from anabranch_planner.subqueries.grouped import PARTS, STRICT
from anabranch_planner.subqueries.joins import Inner, Joins, as_where
from anabranch_planner.subqueries.names import OUTER, FromTables, column_of, columns_in, replaced


def by_equalities(joins: Joins, inner: Inner) -> Inner:
    """The subquery ``inner``, rewritten so that only equalities correlate it.

    Raises:
        QueryError: ``unsupported-sql``: such a rewriting is not possible.
    """
    equal = [node for node, _, _ in inner.equalities]
    if all(any(node is one for one in equal) for node in inner.correlated):
        return inner
    outer = {value.copy() for node in inner.correlated for value in _outer_values(node)}
    values = sorted(outer, key=lambda value: value.sql())
    below, listed = joins.groups, list[Node](values)
    read = [column for value in values for column in columns_in(value)]
    known = all(column.table for column in read)
    if below is not None:
        keys: dict[Node, Node] = {below.key(n): key for n, key in enumerate(below.keys)}
        known = known and all(column in keys for column in read)
        listed = [replaced(value, lambda part: keys.get(part, part)) for value in values]
    if not known:
        # This call raises an error that names the condition.
        inner.pairs()
    taken = {entry.alias for entry in inner.query.entries} | set(inner.tables.columns)
    alias = next(name for n in count(1) if (name := f"outer{n}") not in taken)
    names = {column: f"subquery_key{n}" for n, column in enumerate(values, 1)}
    items = tuple(map(SelectItem, (node.copy() for node in listed), names.values()))
    distinct = replace(
        joins.query if below is None else below.query,
        conditions=tuple(_own_conditions(joins)),
        items=items,
        post_join=PostJoin(distinct=True),
        nested=("DISTINCT", inner.written),
        subqueries={},
    )

    def inside(part: Node) -> Node:
        if part not in names or not _is_outer(part):
            return part
        return column_of(alias, names[part], part if isinstance(part, exp.Column) else None)

    sources = (*inner.query.sources, FromEntry(distinct, alias, node=inner.written))
    conditions_of_values = [replaced(node, inside) for node in inner.correlated]
    for node, condition in zip(inner.correlated, conditions_of_values, strict=True):
        if not _is_strict(condition):
            with at(inner.written), at(node):
                raise unsupported(
                    f"{describe(node)}, which may hold where a column of the outer query is NULL "
                    "and correlates a subquery,",
                    "compare by = or <, with coalesce(a.x, 0) in place of a.x IS NULL, or join the "
                    "stream in FROM and aggregate above it",
                )
    where = as_where(conditions_of_values)
    conditions = (*inner.query.conditions, Condition(where, len(sources)))
    query = replace(inner.query, sources=sources, conditions=conditions)
    pairs = [exp.EQ(this=column_of(alias, names[c]), expression=c.copy()) for c in values]
    for pair in pairs:
        for column in columns_in(pair.expression):
            column.meta[OUTER] = True
    return replace(
        inner, query=query, tables=FromTables.of(query, joins.streams), correlated=tuple(pairs)
    )


def _is_outer(node: Node) -> bool:
    """Whether ``node`` reads columns of the outer query, and no others."""
    found = list(columns_in(node))
    return bool(found) and all(OUTER in column.meta for column in found)


def _outer_values(node: Node) -> Iterator[Node]:
    """The values of the outer query in a subquery's condition: columns, and expressions over them
    that may be not NULL although a column is NULL."""
    plain = isinstance(node, (*STRICT, *PARTS, exp.Between))
    plain = plain or any(SUBQUERY in part.meta for part in node.walk())
    if _is_outer(node) and (isinstance(node, exp.Column) or not plain):
        yield node
        return
    for part in node.iter_expressions():
        yield from _outer_values(part)


def _is_strict(condition: Node) -> bool:
    """Whether a correlating ``condition`` can't be true if one of its columns is NULL."""
    parts = list(condition.walk())
    between = isinstance(condition, exp.Between)
    return all(isinstance(part, (*STRICT, *PARTS)) for part in parts[between:])


def _own_conditions(joins: Joins) -> list[Condition]:
    """The conjuncts of a query without subqueries that read only the query's own tables."""
    found = list[Condition]()
    below = joins.groups
    tables = joins.tables if below is None else below.tables
    for condition in (joins.query if below is None else below.query).conditions:
        parts = operands(condition.node, exp.And)
        kept = [
            node
            for node in parts
            if not any(SUBQUERY in part.meta for part in node.walk())
            and all(map(tables.has, columns_in(node)))
        ]
        if len(kept) == len(parts):
            found.append(condition)
        elif kept:
            found.append(replace(condition, node=as_where(kept)))
    return found
