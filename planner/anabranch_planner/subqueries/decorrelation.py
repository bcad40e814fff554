"""Decorrelation of subqueries in SELECT list, WHERE and HAVING into joins, before name resolution.

Scalar subqueries are joins with queries of their own (:mod:`.joins`). ``[NOT] EXISTS`` and ``[NOT]
IN`` among the conjuncts of WHERE are semi and anti joins, elsewhere LEFT JOINs (:mod:`.existence`).
If subqueries are evaluated over groups, the groups become a query of their own
(:mod:`.above_groups`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from anabranch_contract.errors import MOST_ERRORS, QueryError
from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.binding.naming import spark_name
from anabranch_planner.sql.scope import unknown_streams
from anabranch_planner.sql.unresolved import (
    SUBQUERY,
    Condition,
    FromEntry,
    Node,
    SelectItem,
    Unresolved,
    at,
    called,
    describe,
    operands,
    unsupported,
)
from anabranch_planner.subqueries.above_groups import above_groups, are_totals, with_groups_below
from anabranch_planner.subqueries.existence import as_join, as_value
from anabranch_planner.subqueries.expansions import with_expansion_parts
from anabranch_planner.subqueries.grouped import is_strict_in, parents
from anabranch_planner.subqueries.join_parts import with_join_parts
from anabranch_planner.subqueries.joins import Joins, as_where, subqueries_in
from anabranch_planner.subqueries.names import FromTables, replaced
from anabranch_planner.subqueries.scalars import scalar


def decorrelated(query: Unresolved, streams: Mapping[str, Stream]) -> Unresolved:
    """``query`` with the subqueries in its expressions, at any depth of FROM, turned into joins.

    Args:
        streams: the registered streams, and the registered queries, by name.

    Raises:
        QueryError: ``unsupported-sql``, naming the subquery; ``unknown-stream``.
    """
    missing = sorted(unknown_streams(query, streams), key=lambda one: one.position or (0, 0))
    if missing:
        raise missing[0].beside(missing[1:MOST_ERRORS])
    joined = _Decorrelation(streams).rewritten(query, ())
    return with_join_parts(with_expansion_parts(joined, streams), streams)


@dataclass(slots=True)
class _Decorrelation:
    """Decorrelation of a statement. A query of WITH that is read repeatedly stays one object."""

    streams: Mapping[str, Stream]
    _known: dict[int, tuple[Unresolved, Unresolved]] = field(default_factory=dict)

    def rewritten(self, query: Unresolved, above: tuple[FromTables, ...]) -> Unresolved:
        """``query`` with the subqueries in its expressions turned into joins.

        Args:
            above: tables of the enclosing queries, the innermost first.
        """
        if not query.has_subqueries:
            return query
        if query.subqueries and any(item.without or item.replaced for item in query.items):
            raise unsupported(
                "* with EXCEPT or REPLACE beside a subquery in an expression", "name the columns"
            )
        sources = tuple(map(self._entry, query.sources))
        outer = tuple(replace(side, source=self._entry(side.source)) for side in query.outer)
        branches = tuple(map(self._entry, query.branches))
        query = replace(query, sources=sources, outer=outer, branches=branches)
        if not query.subqueries:
            return query
        joins = Joins.of(query, self.streams, self.rewritten, above)
        holders = above_groups(query)
        if holders and are_totals(joins, holders):
            return query
        return with_groups_below(joins, _with_joins) if holders else _with_joins(joins)

    def _entry(self, entry: FromEntry) -> FromEntry:
        inner = entry.of
        if isinstance(inner, str) or not inner.has_subqueries:
            return entry
        if id(inner) not in self._known:
            made = self.rewritten(inner, ())
            if made.outer and made.nested is None:
                made = replace(made, nested=("EXISTS or NOT EXISTS", entry.node))
            # Keep a reference to the subquery, so that no other object gets its id.
            self._known[id(inner)] = inner, made
        return replace(entry, of=self._known[id(inner)][1])


def _with_joins(joins: Joins) -> Unresolved:
    """The query of ``joins``, with its subqueries turned into joins."""
    query = joins.query
    conditions = [made for one in query.conditions if (made := _condition(joins, one)) is not None]
    items = tuple(_item(joins, item) for item in query.items)
    if len(joins.sources) > len(query.sources) or len(joins.sides) > len(query.outer):
        items = tuple(_without_star(joins, items))
    for entry in () if query.post_join is None else query.post_join.order:
        for holder in subqueries_in(entry):
            with at(holder):
                raise unsupported("a subquery in ORDER BY", "select it, and order by its alias")
    for one in conditions:
        scope = len(joins.sources) if isinstance(one.node.parent, exp.Where) else one.scope
        joins.conditions.append(replace(one, scope=scope))
    return replace(
        query,
        sources=tuple(joins.sources),
        outer=tuple(joins.sides),
        conditions=tuple(joins.conditions),
        items=items,
        subqueries={},
    )


def _condition(joins: Joins, condition: Condition) -> Condition | None:
    where = isinstance(condition.node.parent, exp.Where)
    if not where and not any(True for _ in subqueries_in(condition.node)):
        return condition
    if not where and any(side.kind is JoinKind.FULL for side in joins.query.outer):
        with at(condition.node):
            raise unsupported("a subquery in ON before a FULL JOIN", "write the join in FROM (...)")
    parts = operands(condition.node, exp.And)
    kept = [made for part in parts if (made := _conjunct(joins, part, parts)) is not None]
    if len(kept) == len(parts) and all(a is b for a, b in zip(kept, parts, strict=True)):
        return condition
    return replace(condition, node=as_where(kept)) if kept else None


def _conjunct(joins: Joins, node: Node, conjuncts: list[Node]) -> Node | None:
    """A conjunct after its subqueries have become joins; None if only a join is left."""
    inside, negated = node, False
    while isinstance(inside, exp.Not | exp.Paren):
        negated ^= isinstance(inside, exp.Not)
        inside = inside.this
    if SUBQUERY in inside.meta and not isinstance(inside, exp.Subquery):
        with at(node):
            return as_join(joins, inside, node, conjuncts, negated=negated)
    return _over_values(joins, node, condition=True)


def _item(joins: Joins, item: SelectItem) -> SelectItem:
    """An item of the SELECT list after its subqueries have become joins."""
    if item.node is None or not any(True for _ in subqueries_in(item.node)):
        return item
    with at(item.node):
        name = item.name or spark_name(item.node)
        if not name:
            raise QueryError(
                "unnamed-output",
                f"{describe(item.node)} has no name",
                remedy="give it a name with AS",
            )
        return replace(item, node=_over_values(joins, item.node), name=name)


def _without_star(joins: Joins, items: tuple[SelectItem, ...]) -> Iterator[SelectItem]:
    """The SELECT list with ``*`` replaced, so as not to show columns of joined subqueries."""
    tables = joins.tables
    alone = not tables.merged and not tables.natural and "" not in tables.columns
    for item in items:
        if item.node is not None or item.qualifier is not None:
            yield item
        elif alone:
            yield from (replace(item, qualifier=alias) for alias in tables.columns)
        else:
            raise unsupported("* beside a subquery in an expression", "name the columns")


def _over_values(joins: Joins, node: Node, *, condition: bool = False) -> Node:
    """``node`` with its subqueries replaced by their values.

    Args:
        condition: whether ``node`` is a condition that keeps only rows for which it is true.
    """
    values: dict[int, Node] = {}
    for holder in list(subqueries_in(node)):
        number = holder.meta[SUBQUERY]
        with at(holder):
            if isinstance(holder, exp.Subquery):
                strict = condition and is_strict_in(node, number)
                value = scalar(joins, joins.inner(holder), strict=strict)
            else:
                value = as_value(joins, holder, monotone=condition and _is_monotone(holder, node))
        values[number] = called(exp.Paren(this=value), describe(holder))
    if not values:
        return node
    made = replaced(node, lambda part: values.get(part.meta.get(SUBQUERY, 0), part))
    return as_where([made]) if condition else made


def _is_monotone(holder: Node, condition: Node) -> bool:
    """Whether only AND and OR are between ``holder`` (of a subquery) and all of ``condition``."""
    around = parents(holder, condition)
    return all(isinstance(part, exp.And | exp.Or | exp.Paren) for part in around)
