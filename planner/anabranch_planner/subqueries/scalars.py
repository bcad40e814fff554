"""Scalar subqueries as joins, with checks that they return at most one row.

An aggregate's FROM is grouped by the columns that correlate it (as a query of its own,
``sql.named``) and joined by these columns; the value is an expression over that query's columns.
The join is an inner join if the surrounding condition can't be true for NULL, else a LEFT JOIN. If
the subquery is not correlated, the grouped query has one row, joined by a constant. A subquery
without an aggregate must have at most one row by the keys of streams and groups, or by LIMIT 1; or
its rows are selected by a constant or DISTINCT, and evaluation fails if there are several.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.text_values import SEVERAL_ROWS
from anabranch_contract.queries.views import RankFunction
from anabranch_planner.sql.scope import find_stream
from anabranch_planner.sql.unresolved import (
    FromEntry,
    Node,
    PostJoin,
    RowRanking,
    SelectItem,
    Unresolved,
    at,
    bare,
    describe,
    not_null,
    unsupported,
)
from anabranch_planner.subqueries.grouped import GroupedEntry, is_strict
from anabranch_planner.subqueries.joins import (
    Inner,
    Joins,
    count_of,
    groups_of,
    is_grouped,
    of_item,
)
from anabranch_planner.subqueries.names import FromTables, column_of, columns_in
from anabranch_planner.subqueries.outer_values import by_equalities
from anabranch_planner.subqueries.right_sides import is_limited, own_conjuncts, right_of


def scalar(joins: Joins, inner: Inner, *, strict: bool) -> Node:
    """The value of a scalar subquery, after adding a join; equal subqueries share one join.

    Args:
        strict: whether rows for which the value is NULL are dropped in any case.

    Raises:
        QueryError: the subquery may return several rows or columns.
    """
    given = inner.query, inner.correlated, strict
    # A join that keeps rows without a value may replace one that drops them, not the reverse.
    either = given, (*given[:2], True)
    value = next((value for known, value in joins.values if known in either), None)
    if value is None:
        value = _joined(joins, inner, strict=strict)
        joins.values.append((given, value))
    return value.copy()


def _joined(joins: Joins, inner: Inner, *, strict: bool) -> Node:
    items = inner.query.items
    if len(items) != 1 or (item := items[0].node) is None:
        raise unsupported("a scalar subquery of several columns", "select one column")
    if inner.is_grouped:
        return of_groups(joins, inner, item, strict=strict)
    clauses = inner.query.post_join or PostJoin()
    if not is_limited(clauses) and _has_one_row(joins, inner):
        inner = replace(inner, query=replace(inner.query, post_join=None, nested=None))
        if any(True for _ in inner.equalities):
            right = right_of(joins, inner, [item])
            value, on = right.over(item), right.on()
            joins.join(right.entry(), on, inner=strict)
            return value
        return of_groups(joins, inner, _any(item), strict=strict)
    if is_limited(clauses) and clauses == PostJoin(limit=clauses.limit):
        return of_groups(joins, inner, _any(item), strict=strict)
    chosen = clauses.distinct or any(True for _ in _constants(inner))
    plain = replace(clauses, distinct=False, order=()) == PostJoin()
    if chosen and plain and not inner.correlated:
        return of_groups(joins, inner, _only(item, distinct=clauses.distinct), strict=strict)
    return _first(joins, inner, items[0], item, strict=strict)


def _any(node: Node) -> Node:
    return exp.Anonymous(this="any_value", expressions=[node.copy()])


def _only(node: Node, *, distinct: bool) -> Node:
    """The value of ``node`` in the only row; evaluation fails if there are several rows."""
    value, one = _any(node), exp.Literal.number(1)
    count: Node = exp.Anonymous(this="count", expressions=[exp.Star()])
    if distinct:
        values = exp.Distinct(expressions=[node.copy()])
        null = exp.Case(
            ifs=[exp.If(this=exp.Is(this=node.copy(), expression=exp.Null()), true=one.copy())],
            default=exp.Literal.number(0),
        )
        count = exp.Add(
            this=exp.Anonymous(this="count", expressions=[values]),
            expression=exp.Anonymous(this="max", expressions=[null]),
        )
    several = exp.GT(this=exp.Paren(this=count), expression=one.copy())
    text = exp.Literal.string(SEVERAL_ROWS)
    failing = exp.Cast(this=text, to=exp.DataType.build("bigint"))
    checked = exp.Case(ifs=[exp.If(this=several, true=failing)], default=one.copy())
    return _case(exp.EQ(this=exp.Paren(this=checked), expression=one.copy()), value)


def of_groups(joins: Joins, inner: Inner, item: Node, *, strict: bool) -> Node:
    """Value of ``item``, an expression over the single group of an aggregating subquery."""
    constants = dict(_constants(inner))
    determined = {own for _, own, _ in inner.equalities} | set(constants)
    inner = by_equalities(joins, inner)
    clauses, pairs = inner.query.post_join or PostJoin(), inner.pairs()
    groups = groups_of(inner.query, inner.tables)
    keys = list(dict.fromkeys([*(own for own, _ in pairs), *groups]))
    none = clauses.limit is not None and count_of(clauses.limit) < 1
    if clauses.qualify is not None or clauses.offset is not None or none:
        raise unsupported("LIMIT 0, OFFSET or QUALIFY in a scalar subquery", "leave it out")
    for key in groups:
        if key not in determined:
            with at(inner.written), at(key):
                raise unsupported(
                    f"a scalar subquery with a row for each {describe(key)}",
                    "leave GROUP BY out, or compare it with a column of the outer query by =",
                )
    entry = GroupedEntry(inner.query, inner.tables, keys, joins.alias(), inner.refer)
    always = clauses.group is None
    joined = (strict and is_strict(item)) or (always and not keys)
    zeros = always and not joined
    value = entry.over(item, zeros=zeros)
    if clauses.having is not None:
        value = _case(entry.over(clauses.having, zeros=zeros), value)
    if not always and not joined:
        value = _case(not_null(entry.key(0)), value)
    on: list[Node] = [
        exp.EQ(this=entry.key(keys.index(own)), expression=outer.copy()) for own, outer in pairs
    ]
    if groups and not on:
        on = [joins.constant(entry.key(keys.index(key)), constants[key]) for key in groups]
    joins.join(entry.entry(inner.written), on, inner=joined)
    return value


def _first(joins: Joins, inner: Inner, shown: SelectItem, item: Node, *, strict: bool) -> Node:
    """The value of the scalar subquery ``SELECT x ... ORDER BY y LIMIT 1``."""
    clauses = inner.query.post_join or PostJoin()
    limited = clauses.limit is not None and count_of(clauses.limit) == 1
    others = clauses.offset, clauses.qualify, *clauses.distinct_on
    if not limited or not clauses.order or any(node is not None for node in others):
        raise unsupported(
            "a scalar subquery that may give several rows",
            "select an aggregate, e.g. max(x), add ORDER BY y LIMIT 1, or compare the whole key of "
            "a stream of kind upsert",
        )
    for column in (*columns_in(item), *(c for o in clauses.order for c in columns_in(o))):
        if inner.refer(column) is not None:
            raise unsupported(
                f"{describe(column)}, a column of the outer query, beside LIMIT",
                "select and order by columns of the subquery",
            )
    inner = by_equalities(joins, inner)
    pairs, alias = inner.pairs(), joins.alias()
    keys = list(dict.fromkeys(own for own, _ in pairs))
    order = tuple(_sorted_by(entry, shown, inner) for entry in clauses.order)
    names = [f"subquery_key{n}" for n, _ in enumerate(keys or (1,), 1)]
    listed = keys or [exp.Literal.number(1)]
    items = [SelectItem(key.copy(), n) for key, n in zip(listed, names, strict=True)]
    partition = tuple(key.copy() for key in keys)
    ranking = RowRanking(RankFunction.ROW_NUMBER, partition, order, 1)
    made = replace(
        inner.query,
        items=(*items, SelectItem(item, "subquery_value1")),
        post_join=PostJoin(ranking=ranking)
        if keys
        else PostJoin(order=order, limit=exp.Literal.number(1)),
        nested=("LIMIT", inner.written),
    )
    on: list[Node] = [
        exp.EQ(this=column_of(alias, names[keys.index(own)]), expression=outer.copy())
        for own, outer in pairs
    ]
    joins.join(FromEntry(made, alias, node=inner.written), on, inner=strict)
    return column_of(alias, "subquery_value1")


def _case(condition: Node, value: Node) -> Node:
    return exp.Case(ifs=[exp.If(this=condition, true=value)])


def _sorted_by(entry: exp.Ordered, shown: SelectItem, inner: Inner) -> exp.Ordered:
    """A sort key; a position or alias of the SELECT list is replaced by its expression."""
    found: exp.Ordered = entry.copy()
    meant = of_item(entry.this, replace(inner.query, items=(shown,)))
    found.set("this", meant.copy())
    return found


def _constants(inner: Inner) -> Iterator[tuple[Node, Node]]:
    """Equalities with constants among the subquery's conditions, as (expression, constant)."""
    for node in own_conjuncts(inner):
        if isinstance(node, exp.EQ):
            left, right = (bare(inner.tables.qualified(n)) for n in (node.this, node.expression))
            for one, other in ((left, right), (right, left)):
                if not any(True for _ in columns_in(other)):
                    yield one, other


# --- subqueries with one row ---------------------------------------------------------------------


def _has_one_row(joins: Joins, inner: Inner) -> bool:
    """Whether a subquery has at most one row, as equalities determine a key of each FROM entry."""
    tables, entries = inner.tables, inner.query.sources
    keys = [key for entry in entries if (key := _key(joins, entry)) is not None]
    if inner.query.outer or inner.query.generators or len(keys) < len(entries):
        return False
    determined = {own for _, own, _ in inner.equalities}
    equal: list[tuple[Node, Node]] = []
    for node in own_conjuncts(inner):
        if isinstance(node, exp.EQ):
            sides = bare(tables.qualified(node.this)), bare(tables.qualified(node.expression))
            equal += [sides, sides[::-1]]
            determined |= {one for one in sides if not any(True for _ in columns_in(one))}
    before = -1
    while before < len(determined):
        before = len(determined)
        for entry, key in zip(entries, keys, strict=True):
            if key <= determined:
                alias = entry.alias or ""
                determined |= {column_of(alias, name) for name in tables.columns[alias]}
        determined |= {other for one, other in equal if one in determined}
    return all(key <= determined for key in keys)


def _key(joins: Joins, entry: FromEntry) -> set[Node] | None:
    """Columns that form a key of an entry of FROM; empty if the entry has at most one row; None if
    no key is known."""
    alias = entry.alias
    if isinstance(entry.of, Unresolved) and _is_single(entry.of):
        return set()
    if alias is None or entry.columns or entry.using or entry.natural:
        return None
    if isinstance(entry.of, str):
        names = [name.lower() for name in find_stream(entry.of, joins.streams).row_key]
    else:
        names = list(_groups_shown(entry.of, joins))
    return {column_of(alias, name) for name in names} or None


def _is_single(query: Unresolved) -> bool:
    """Whether a subquery aggregates all its rows to one."""
    clauses = query.post_join or PostJoin()
    whole = clauses.group is None and not clauses.group_all and clauses.copies is None
    return is_grouped(query) and whole


def _groups_shown(query: Unresolved, joins: Joins) -> Iterator[str]:
    """Names of the output columns that are the keys of a grouped subquery; empty if it does not
    show all of its keys."""
    tables, shown = FromTables.of(query, joins.streams), dict[Node, str]()
    try:
        groups = groups_of(query, tables)
    except QueryError:
        return
    for item in query.items:
        if item.node is not None:
            name = item.name or (item.node.name if isinstance(item.node, exp.Column) else "")
            shown[bare(tables.qualified(item.node))] = name.lower()
    if all(shown.get(key) for key in groups):
        yield from (shown[key] for key in groups)
