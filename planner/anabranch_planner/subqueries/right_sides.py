"""Rows of a subquery as an entry of FROM: a stream, a join, groups, or the first rows by order."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from sqlglot import exp

from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.sql.unresolved import (
    Condition,
    FromEntry,
    Node,
    PostJoin,
    SelectItem,
    Unresolved,
    called,
    describe,
    operands,
    unsupported,
)
from anabranch_planner.subqueries.grouped import GroupedEntry
from anabranch_planner.subqueries.joins import Inner, Joins, as_where, groups_of
from anabranch_planner.subqueries.names import OUTER, column_of, columns_in, replaced
from anabranch_planner.subqueries.outer_values import by_equalities


@dataclass(frozen=True, slots=True)
class RightSide:
    """The rows of a subquery as the right side of a join.

    Attributes:
        over: rewrites an expression of the subquery over columns of the entry.
        on: makes the join's conditions. ``entry``: makes the entry of FROM, once all expressions
            over it are known.
        rows: makes a query with the rows. ``raw``: rewrites an expression over these rows.
        unique: whether all rows differ in the compared columns.
    """

    over: Callable[[Node], Node]
    on: Callable[[], list[Node]]
    entry: Callable[[], FromEntry]
    rows: Callable[[], Unresolved]
    raw: Callable[[Node], Node]
    written: Node
    unique: bool = False


def right_of(joins: Joins, inner: Inner, shown: list[Node]) -> RightSide:
    """The rows of a subquery as a join's right side; ``shown``: its SELECT list (EXISTS: empty).

    Raises:
        QueryError: ``unsupported-sql``: clauses that a correlated subquery can't have.
    """
    clauses = inner.query.post_join or PostJoin()
    if inner.is_grouped and not is_limited(clauses):
        return _groups(joins, inner, shown)
    # EXISTS ignores LIMIT, since it is true if there is any row.
    clauses = clauses if shown else replace(clauses, limit=None)
    if is_limited(clauses) or inner.is_grouped:
        return _limited(joins, inner, shown)
    query, only = _plain(inner), inner.query.sources[0]
    alone = len(query.sources) == 1 and not query.generators
    if alone and isinstance(only.of, str) and query.nested is None:
        return _stream(joins, inner, only)
    return _rows(joins, inner, query)


def _stream(joins: Joins, inner: Inner, source: FromEntry) -> RightSide:
    """The right side for a subquery over a single stream; its conditions become the join's."""
    alias = joins.alias(source.alias or str(source.of))
    entry = replace(source, alias=alias)

    def over(node: Node) -> Node:
        return _over(inner, node, lambda column: column_of(alias, column.name, column))

    def on() -> list[Node]:
        return list(map(over, (*own_conjuncts(inner), *inner.correlated)))

    return RightSide(over, on, lambda: entry, lambda: _plain(inner), lambda n: n, inner.written)


def _rows(joins: Joins, inner: Inner, query: Unresolved) -> RightSide:
    """The right side for a join: a subquery in FROM, with the columns that are read."""
    alias, names = joins.alias(), dict[Node, str]()

    def column(part: exp.Column) -> Node:
        name = names.setdefault(part.copy(), f"subquery_key{len(names) + 1}")
        return column_of(alias, name, part)

    def entry() -> FromEntry:
        items = tuple(SelectItem(own, name) for own, name in names.items())
        return FromEntry(replace(query, items=items), alias, node=inner.written)

    def over(node: Node) -> Node:
        return _over(inner, node, column)

    def on() -> list[Node]:
        return list(map(over, inner.correlated))

    return RightSide(over, on, entry, lambda: query, lambda node: node, inner.written)


def _groups(joins: Joins, inner: Inner, shown: list[Node]) -> RightSide:
    inner = by_equalities(joins, inner)
    pairs, having = inner.pairs(), (inner.query.post_join or PostJoin()).having
    groups = groups_of(inner.query, inner.tables)
    keys = list(dict.fromkeys([*groups, *(own for own, _ in pairs)]))
    for column in () if having is None else columns_in(having):
        if inner.refer(column) is not None:
            raise unsupported(
                f"{describe(column)}, a column of the outer query, in HAVING beside GROUP BY",
                "compare it with a scalar subquery",
            )
    made = GroupedEntry(inner.query, inner.tables, keys, joins.alias(), inner.refer, having)
    once: list[FromEntry] = []

    def entry() -> FromEntry:
        if not once:
            once.append(made.entry(inner.written))
        return once[0]

    def on() -> list[Node]:
        return [exp.EQ(this=made.key(keys.index(own)), expression=o.copy()) for own, o in pairs]

    own = {inner.tables.qualified(node) for node in shown}
    return RightSide(
        made.over,
        on,
        entry,
        lambda: Unresolved((entry(),), (), ()),
        made.over,
        inner.written,
        unique=bool(shown) and set(groups) <= own | {key for key, _ in pairs},
    )


def _limited(joins: Joins, inner: Inner, shown: list[Node]) -> RightSide:
    """The right side for an uncorrelated subquery with LIMIT or a ranking: an entry of FROM."""
    alias = joins.alias()
    if inner.correlated or not shown:
        raise unsupported(
            "LIMIT, OFFSET or QUALIFY in a correlated subquery, or in EXISTS",
            "leave it out, or compare with a scalar subquery of one aggregate",
        )
    names = [f"subquery_key{n}" for n, _ in enumerate(shown, 1)]
    query = replace(inner.query, items=tuple(map(SelectItem, shown, names)))
    entry = FromEntry(query, alias, node=inner.written)

    def over(node: Node) -> Node:
        return column_of(alias, names[next(n for n, one in enumerate(shown) if one is node)])

    rows = Unresolved((entry,), (), ())
    return RightSide(over, list, lambda: entry, lambda: rows, over, inner.written)


def _over(inner: Inner, node: Node, change: Callable[[exp.Column], Node]) -> Node:
    """``node`` with ``change`` applied to the subquery's columns, and outer columns resolved."""

    def found(part: Node) -> Node:
        if not isinstance(part, exp.Column) or OUTER in part.meta:
            return part
        made = inner.refer(part) or change(part)
        return called(made, describe(part))

    return replaced(inner.tables.qualified(node), found)


def _plain(inner: Inner) -> Unresolved:
    """The rows of a subquery if only their existence matters: its semi joins become inner joins."""
    query = replace(inner.query, post_join=None, nested=None)
    if not query.outer:
        return query
    if any(side.kind is not JoinKind.SEMI for side in query.outer):
        return replace(query, nested=("EXISTS or NOT EXISTS", inner.written))
    sources, conditions = list(query.sources), list[Condition]()
    for condition in query.conditions:
        node = inner.tables.qualified(condition.node)
        where = isinstance(condition.node.parent, exp.Where)
        conditions.append(replace(condition, node=as_where([node]) if where else node))
    for side in query.outer:
        sources.append(side.source)
        if side.on is not None:
            conditions.append(Condition(side.on, len(sources)))
    return replace(
        query, sources=tuple(sources), conditions=tuple(conditions), outer=(), post_join=None
    )


def own_conjuncts(inner: Inner) -> list[Node]:
    """The conjuncts of a subquery that do not read the outer query."""
    return [part for c in inner.query.conditions for part in operands(c.node, exp.And)]


def is_limited(clauses: PostJoin) -> bool:
    """Whether ``clauses`` (LIMIT, a ranking ...) select only some of the subquery's rows."""
    some = clauses.limit, clauses.offset, clauses.qualify, *clauses.distinct_on
    return any(node is not None for node in some)
