"""Subqueries in HAVING, or in the SELECT list, of a grouped statement.

Such subqueries are evaluated over the groups, which become a query of their own: ``SELECT k, sum(x)
FROM a GROUP BY k HAVING sum(x) > (SELECT ...)`` is ``SELECT g.k, g.s FROM (SELECT k, sum(x) AS s
FROM a GROUP BY k) g WHERE g.s > (SELECT ...)``. Totals of the statement's own joined rows are
computed with the groups instead (``binding.totals``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import groupby, permutations, product
from math import factorial, prod

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_planner.binding.post_join import name_of
from anabranch_planner.sql.aggregates import call_of
from anabranch_planner.sql.unresolved import (
    SUBQUERY,
    Condition,
    FromEntry,
    Node,
    PostJoin,
    SelectItem,
    Unresolved,
    at,
    describe,
    operands,
    unsupported,
)
from anabranch_planner.subqueries.grouped import GroupedEntry, parents
from anabranch_planner.subqueries.joins import (
    Joins,
    as_where,
    groups_of,
    is_grouped,
    of_item,
    subqueries_in,
)
from anabranch_planner.subqueries.names import FromTables, column_of, replaced

_SUMMED = frozenset({"count", "sum", "min", "max"})
#: Maximum number of assignments of aliases that are tried when two joins are compared.
_MOST_ORDERS = 120


def above_groups(query: Unresolved) -> list[Node]:
    """The nodes of a statement whose subqueries are evaluated over the groups of ``query``."""
    clauses = query.post_join
    if clauses is None or not is_grouped(query):
        return []
    nodes = [item.node for item in query.items if item.node is not None]
    nodes += [node for node in (clauses.having, *clauses.order) if node is not None]
    return [holder for node in nodes for holder in _outside_aggregates(node)]


def _outside_aggregates(node: Node) -> Iterator[Node]:
    for holder in subqueries_in(node):
        if all(call_of(part) is None for part in parents(holder, node)):
            yield holder


def are_totals(joins: Joins, holders: Iterable[Node]) -> bool:
    """Whether all subqueries are sums, counts, minima or maxima of the query's own joined rows."""
    query, clauses = joins.query, joins.query.post_join
    where = {n.meta[SUBQUERY] for c in query.conditions for n in subqueries_in(c.node)}
    if clauses is None or not clauses.group or where or query.outer:
        return False
    for holder in holders:
        inner = query.subqueries[holder.meta[SUBQUERY]]
        rest = inner.post_join
        if not isinstance(holder, exp.Subquery) or rest is None or inner.outer or inner.subqueries:
            return False
        if rest.group is not None or rest.having is not None or len(inner.items) != 1:
            return False
        calls = [call_of(node) for item in inner.items if item.node for node in item.node.walk()]
        if any(c is not None and (c.name not in _SUMMED or c.distinct) for c in calls):
            return False
        if not _have_same_rows(inner, query, joins):
            return False
    return True


def _have_same_rows(one: Unresolved, other: Unresolved, joins: Joins) -> bool:
    """Whether two queries join the same entries of FROM by the same conditions, in any order."""
    entries = [*one.sources, *other.sources]
    if any(e.using or e.natural or e.columns or _has_parts(e.of) for e in entries):
        return False
    wanted, conditions = sorted(other.sources, key=_text), _conditions(other, joins)
    given, own = sorted(one.sources, key=_text), _conditions(one, joins)
    if [e.of for e in wanted] != [e.of for e in given]:
        return False
    # Aliases of the same stream may be exchanged.
    alike = [list(group) for _, group in groupby(given, _text)]
    if prod(factorial(len(group)) for group in alike) > _MOST_ORDERS:
        return False
    for orders in product(*map(permutations, alike)):
        pairs = zip((e for order in orders for e in order), wanted, strict=True)
        names = {(a.alias or "").lower(): b.alias or "" for a, b in pairs}
        if {_renamed(node, names) for node in own} == {_renamed(n, {}) for n in conditions}:
            return True
    return False


def _has_parts(of: str | Unresolved) -> bool:
    return not isinstance(of, str) and (
        of.nested is not None or any(_has_parts(entry.of) for entry in of.entries)
    )


def _text(entry: FromEntry) -> str:
    return entry.of.lower() if isinstance(entry.of, str) else repr(entry.of)


def _conditions(query: Unresolved, joins: Joins) -> list[Node]:
    tables = FromTables.of(query, joins.streams)
    conjuncts = (part for c in query.conditions for part in operands(c.node, exp.And))
    return [tables.qualified(node) for node in conjuncts]


def _renamed(node: Node, names: Mapping[str, str]) -> Node | frozenset[Node]:
    """A conjunct with other aliases, comparable: an equality becomes the set of its sides."""

    def found(part: Node) -> Node:
        if not isinstance(part, exp.Column):
            return part
        return column_of(names.get(part.table.lower(), part.table), part.name)

    made = replaced(node, found)
    return frozenset((made.this, made.expression)) if isinstance(made, exp.EQ) else made


def with_groups_below(joins: Joins, rewrite: Callable[[Joins], Unresolved]) -> Unresolved:
    """The rewritten query of ``joins``, in which the groups are a query of their own in FROM, and
    the subqueries are evaluated over them.

    Args:
        rewrite: rewrites the query over the groups; its subqueries may read the groups' columns.
    """
    query, clauses = joins.query, joins.query.post_join or PostJoin()
    for key in clauses.order:
        for holder in subqueries_in(key):
            with at(holder):
                raise unsupported("a subquery in ORDER BY", "select it, and order by its alias")
    if clauses.qualify is not None or clauses.distinct_on:
        raise unsupported("QUALIFY with a subquery over groups", "leave one of them out")
    keys = groups_of(query, joins.tables)
    below = GroupedEntry(query, joins.tables, keys, joins.alias("groups"), lambda _: None)

    def meant(node: Node) -> Node:
        """``node`` with aliases of SELECT replaced by their expressions, but not in aggregates."""

        def found(part: Node) -> Node:
            if call_of(part) is not None:
                return part.copy()
            return of_item(part, query).copy() if isinstance(part, exp.Column) else part

        return replaced(node, found)

    items = []
    for item in query.items:
        with at(item.node):
            if item.node is None:
                raise unsupported("* of groups", "name the columns")
            name = item.name if item.name is not None else name_of(item.node)
            if not name:
                raise QueryError(
                    "unnamed-output",
                    f"{describe(item.node)} has no name",
                    remedy="give it a name with AS",
                )
            items.append(SelectItem(below.over(item.node), name, field=item.field))
    conditions = []
    if clauses.having is not None:
        conditions = [Condition(as_where([below.over(meant(clauses.having))]), 1)]
    order = []
    for one in clauses.order:
        sort: exp.Ordered = one.copy()
        sort.set("this", below.over(of_item(one.this, query)))
        order.append(sort)
    post_join = PostJoin(
        distinct=clauses.distinct, order=tuple(order), limit=clauses.limit, offset=clauses.offset
    )
    rows_only = not (post_join.distinct or order or post_join.limit or post_join.offset)
    placeholder = FromEntry("", below.alias)
    above = replace(
        query,
        sources=(placeholder,),
        outer=(),
        generators=(),
        conditions=tuple(conditions),
        items=tuple(items),
        post_join=None if rows_only else post_join,
        nested=None if rows_only else query.nested,
    )

    def refer(column: exp.Column) -> Node | None:
        return below.over(column) if joins.tables.has(column) else None

    made = rewrite(
        replace(
            joins,
            query=above,
            refer=refer,
            anchor=below.key(0),
            sources=[placeholder],
            sides=[],
            groups=below,
        )
    )
    used = {holder.meta[SUBQUERY] for holder in above_groups(query)}
    kept = {number: one for number, one in query.subqueries.items() if number not in used}
    entry = below.entry(query.nested[1] if query.nested else None)
    inside = entry.of
    assert isinstance(inside, Unresolved)
    inside = joins.rewrite(replace(inside, subqueries=kept), joins.above)
    return replace(made, sources=(replace(entry, of=inside), *made.sources[1:]))
