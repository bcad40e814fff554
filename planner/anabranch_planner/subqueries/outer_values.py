"""Subqueries correlated by other conditions than equalities.

``SELECT max(b.w) FROM b WHERE b.k = a.k AND b.w < a.v`` is joined with the outer query's distinct
values (``a.k``, ``a.v``), and correlated by equalities with these values instead. Conditions must
not hold for NULL, as values are compared by =.
"""

from __future__ import annotations

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
    operands,
)
from anabranch_planner.subqueries.grouped import PARTS, STRICT
from anabranch_planner.subqueries.joins import Inner, Joins, as_where
from anabranch_planner.subqueries.names import OUTER, FromTables, column_of, columns_in, replaced


def by_equalities(joins: Joins, inner: Inner) -> Inner:
    """``inner``, correlated by equalities only.

    Raises:
        QueryError: ``unsupported-sql``: that is not possible.
    """
    equal = [node for node, _, _ in inner.equalities]
    if all(any(node is one for one in equal) for node in inner.correlated):
        return inner
    outer = {column.copy() for node in inner.correlated for column in _outer_columns(node)}
    values = sorted(outer, key=lambda column: column.sql())
    below, listed = joins.groups, list[Node](values)
    if below is not None:
        keys = {below.key(n): key for n, key in enumerate(below.keys)}
        listed = [keys.get(column, exp.Null()) for column in values]
    known = all(column.table for column in values) and exp.Null() not in listed
    if not known or not all(map(_is_strict, inner.correlated)):
        # Raises, naming the condition.
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
        if isinstance(part, exp.Column) and OUTER in part.meta:
            return column_of(alias, names[part], part)
        return part

    sources = (*inner.query.sources, FromEntry(distinct, alias, node=inner.written))
    where = as_where([replaced(node, inside) for node in inner.correlated])
    conditions = (*inner.query.conditions, Condition(where, len(sources)))
    query = replace(inner.query, sources=sources, conditions=conditions)
    pairs = [exp.EQ(this=column_of(alias, names[c]), expression=c.copy()) for c in values]
    for pair in pairs:
        pair.expression.meta[OUTER] = True
    return replace(
        inner,
        query=query,
        tables=FromTables.of(query, joins.streams),
        correlated=tuple(pairs),
    )


def _outer_columns(node: Node) -> list[exp.Column]:
    return [column for column in columns_in(node) if OUTER in column.meta]


def _is_strict(condition: Node) -> bool:
    """Whether a correlating ``condition`` can't hold where a column is NULL."""
    parts = list(condition.walk())
    between = isinstance(condition, exp.Between)
    return all(isinstance(part, (*STRICT, *PARTS)) for part in parts[between:])


def _own_conditions(joins: Joins) -> list[Condition]:
    """The conjuncts of a query that read its own tables only, without subqueries."""
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
