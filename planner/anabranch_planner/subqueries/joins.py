"""The joins that replace the subqueries in a query's expressions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import reduce
from typing import TypeAlias

from sqlglot import exp

from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.outer_joins import JoinKind
from anabranch_planner.sql.aggregates import holds_aggregate
from anabranch_planner.sql.unresolved import (
    SUBQUERY,
    Condition,
    FromEntry,
    Node,
    OuterSide,
    Unresolved,
    at,
    bare,
    called,
    conjunction,
    describe,
    operands,
    unsupported,
)
from anabranch_planner.subqueries.grouped import GroupedEntry
from anabranch_planner.subqueries.names import (
    OUTER,
    FromTables,
    anchor_of,
    column_of,
    columns_in,
    replaced,
)

#: Function from a column to its replacement; None for columns that no outer query has.
Referring: TypeAlias = Callable[[exp.Column], Node | None]
#: Function that rewrites a query so that its expressions have no subqueries; the second argument
#: has the tables of the enclosing queries, the innermost first.
Rewriting: TypeAlias = Callable[[Unresolved, tuple[FromTables, ...]], Unresolved]


@dataclass(frozen=True, slots=True)
class Inner:
    """A subquery in an expression.

    Attributes:
        query: the subquery without its correlating conditions.
        tables: tables of the subquery.
        correlated: conjuncts that read columns of the outer query. These columns are replaced and
            marked; the subquery's own columns are qualified.
        refer: maps outer columns to the expressions that replace them.
        written: the subquery's node in the statement.
    """

    query: Unresolved
    tables: FromTables
    correlated: tuple[Node, ...]
    refer: Referring
    written: Node

    @property
    def is_grouped(self) -> bool:
        """Whether the subquery has GROUP BY, HAVING or aggregates."""
        return is_grouped(self.query)

    def has_own(self, node: Node) -> bool:
        """Whether ``node`` reads columns of the subquery."""
        return any(self.tables.has(c) and OUTER not in c.meta for c in columns_in(node))

    @property
    def equalities(self) -> Iterator[tuple[Node, Node, Node]]:
        """The correlating equalities as (conjunct, subquery's expression, outer expression)."""
        for node in self.correlated:
            if not isinstance(node, exp.EQ):
                continue
            for own, outer in ((node.this, node.expression), (node.expression, node.this)):
                mixed = any(OUTER in column.meta for column in columns_in(own))
                if self.has_own(own) and not mixed and not self.has_own(outer):
                    yield node, bare(own), outer

    def pairs(self) -> list[tuple[Node, Node]]:
        """The correlating equalities as (subquery's expression, outer expression).

        Raises:
            QueryError: another condition correlates the subquery.
        """
        found = list(self.equalities)
        for node in self.correlated:
            if not any(node is one for one, _, _ in found):
                with at(self.written), at(node):
                    raise unsupported(
                        f"{describe(node)}, which correlates a subquery by another condition than "
                        "an equality",
                        "compare columns by =, or join the stream in FROM and aggregate above it",
                    )
        return [(own, outer) for _, own, outer in found]


@dataclass(slots=True)
class Joins:
    """A query's FROM and WHERE, to which the subqueries in its expressions are added as joins.

    Attributes:
        query: the query; the subqueries in its FROM have been rewritten already.
        streams: the registered streams.
        rewrite: function that rewrites subqueries.
        tables: tables whose columns its subqueries may read. ``above``: enclosing queries' tables.
        refer: maps a column that a subquery reads to its expression in the query.
        anchor: an arbitrary column of the query.
        sources, sides: entries of FROM for inner joins, and for outer joins. ``conditions``:
            conditions of the added inner joins.
        groups: the grouped query that this query reads, if a grouped statement was split in two.
        values: (scalar subquery, correlation, strictness), and the expression that replaces it.
    """

    query: Unresolved
    streams: Mapping[str, Stream]
    rewrite: Rewriting
    tables: FromTables
    above: tuple[FromTables, ...]
    refer: Referring
    anchor: exp.Column | None
    sources: list[FromEntry]
    sides: list[OuterSide]
    conditions: list[Condition] = field(default_factory=list)
    groups: GroupedEntry | None = None
    values: list[tuple[tuple[Unresolved, tuple[Node, ...], bool], Node]] = field(
        default_factory=list
    )
    _names: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        query: Unresolved,
        streams: Mapping[str, Stream],
        rewrite: Rewriting,
        above: tuple[FromTables, ...],
    ) -> Joins:
        """The joins of ``query``, whose subqueries may read columns of its tables."""
        tables = FromTables.of(query, streams)

        def refer(column: exp.Column) -> Node | None:
            return tables.qualified(column) if tables.has(column) else None

        anchor = anchor_of(query, streams)
        sources, sides = list(query.sources), list(query.outer)
        return cls(query, streams, rewrite, tables, above, refer, anchor, sources, sides)

    def inner(self, holder: Node) -> Inner:
        """The subquery that the syntax node ``holder`` contains.

        Raises:
            QueryError: the subquery is correlated with a query further out, or in an outer join.
        """
        number = holder.meta[SUBQUERY]
        query = self.rewrite(self.query.subqueries[number], (self.tables, *self.above))
        tables = FromTables.of(query, self.streams)
        refer = self._referring(tables)
        local, correlated = list[Condition](), list[Node]()
        for condition in query.conditions:
            given, own = operands(condition.node, exp.And), []
            parts = [one for part in given for one in _factored(part, tables, refer)]
            for part in parts:
                if any(refer(column) is not None for column in columns_in(part)):
                    correlated.append(_with_outer(tables.qualified(part), refer))
                else:
                    own.append(part)
            if len(own) == len(parts) == len(given):
                local.append(condition)
            elif own:
                where = isinstance(condition.node.parent, exp.Where)
                local.append(replace(condition, node=as_where(own) if where else all_of(own)))
        for side in query.outer:
            for column in () if side.on is None else columns_in(side.on):
                hidden = column.table.lower() == (side.source.alias or "").lower()
                if not hidden and refer(column) is not None:
                    with at(holder), at(column):
                        raise unsupported(
                            f"{describe(column)}, a column of an outer query, in the condition of "
                            "an outer join",
                            "compare it in the WHERE of the subquery",
                        )
        made = replace(query, conditions=tuple(local))
        return Inner(made, tables, tuple(correlated), refer, holder)

    def _referring(self, tables: FromTables) -> Referring:
        def refer(column: exp.Column) -> Node | None:
            if tables.has(column):
                return None
            found = self.refer(column)
            if found is None and any(outer.has(column) for outer in self.above):
                with at(column):
                    raise unsupported(
                        f"{describe(column)}, a column of a query two levels further out,",
                        "join the stream that has it in the subquery between them",
                    )
            return found

        return refer

    def alias(self, wanted: str = "") -> str:
        """An alias for a subquery's join: ``wanted``, with underscores if taken; else numbered."""
        taken = {(s.alias or "").lower() for s in (*self.sources, *self.query.entries)}
        taken |= {(side.source.alias or "").lower() for side in self.sides} | self._names
        taken |= {alias.lower() for alias in self.tables.columns}
        name, number = wanted or "subquery1", 1
        while name.lower() in taken:
            number += 1
            name = f"{name}_" if wanted else f"subquery{number}"
        self._names.add(name.lower())
        return name

    def join(self, entry: FromEntry, on: list[Node], *, inner: bool) -> None:
        """Add a join with ``entry``; without conditions, both sides are joined by a constant.

        Args:
            inner: whether it is an inner join, else a LEFT JOIN.
        """
        key, one = column_of(entry.alias or "", "subquery_key1"), exp.Literal.number(1)
        condition = all_of(on or [self.constant(key, one)])
        first = (
            FromTables.of(replace(self.query, outer=()), self.streams) if self.query.outer else None
        )
        early = first is None or all(
            first.has(c) or c.table == entry.alias for c in columns_in(condition)
        )
        # The condition, placed above a FULL JOIN, would exclude right rows of that join.
        early = early and all(side.kind is not JoinKind.FULL for side in self.query.outer)
        if inner and early:
            self.sources.append(entry)
            self.conditions.append(Condition(condition, len(self.sources)))
        else:
            kind = JoinKind.INNER if inner else JoinKind.LEFT
            self.sides.append(OuterSide(kind, entry, condition))

    def constant(self, key: Node, value: Node) -> Node:
        """The equality of ``key``, a column of another entry, and the constant ``value``, written
        so that both sides read a column, as a join requires."""
        if self.anchor is None:
            raise unsupported("a subquery beside a FROM without alias", "give it an alias")
        null = exp.Is(this=self.anchor.copy(), expression=exp.Null())
        case = exp.Case(ifs=[exp.If(this=null, true=value.copy())], default=value.copy())
        return exp.EQ(this=case, expression=key)


def _factored(node: Node, tables: FromTables, refer: Referring) -> list[Node]:
    """The conjuncts of an OR that correlates a subquery: conjuncts common to all alternatives, and
    the OR of what remains of these. Any other node is its own only conjunct."""
    inside = node
    while isinstance(inside, exp.Paren):
        inside = inside.this
    outer = any(refer(column) is not None for column in columns_in(node))
    if not isinstance(inside, exp.Or) or not outer:
        return [node]
    alternatives = []
    for alternative in operands(inside, exp.Or):
        parts = operands(alternative, exp.And)
        alternatives.append({tables.qualified(part): part for part in parts})
    first, *others = alternatives
    common = [key for key in first if all(key in other for other in others)]
    if not common:
        return [node]
    rest = [[p for key, p in one.items() if key not in common] for one in alternatives]
    shared = [first[key] for key in common]
    if not all(rest):
        return shared
    return [*shared, reduce(lambda a, b: exp.Or(this=a, expression=b), map(all_of, rest))]


# --- expressions ---------------------------------------------------------------------------------


def is_grouped(query: Unresolved) -> bool:
    """Whether a query has GROUP BY, HAVING or aggregates."""
    clauses = query.post_join
    if clauses is None:
        return False
    grouped = clauses.group is not None or clauses.group_all or clauses.having is not None
    return grouped or any(i.node is not None and holds_aggregate(i.node) for i in query.items)


def subqueries_in(node: Node) -> Iterator[Node]:
    """The nodes in ``node`` that contain subqueries, without those inside other subqueries."""
    for part in node.walk(prune=lambda part: isinstance(part, exp.Query)):
        if SUBQUERY in part.meta:
            yield part


def groups_of(query: Unresolved, tables: FromTables) -> list[Node]:
    """The qualified expressions of GROUP BY; aliases and positions of SELECT are resolved.

    Raises:
        QueryError: ``unsupported-sql``: grouping sets, GROUP BY ALL, time windows.
    """
    clauses, found = query.post_join, []
    if clauses is None or (clauses.group is None and not clauses.group_all):
        return []
    if clauses.group_all or clauses.group_first:
        raise unsupported("GROUP BY ALL or GROUPING SETS beside a subquery", "write GROUP BY a, b")
    for node in clauses.group or ():
        with at(node):
            sets = isinstance(node, exp.Rollup | exp.Cube | exp.GroupingSets | exp.Tuple)
            if sets or any(str(c.this).lower() in _WINDOWS for c in node.find_all(exp.Anonymous)):
                raise unsupported(
                    f"{describe(node)} in GROUP BY beside a subquery",
                    "register the groups as a query, and compare them in another one",
                )
            key = node
            if not isinstance(node, exp.Column) or node.table or not tables.has(node):
                key = of_item(node, query)
            found.append(bare(tables.qualified(key)))
    return list(dict.fromkeys(found))


_WINDOWS = frozenset({"window", "session_window", "tumble", "hop", "session", "cumulate"})


def of_item(node: Node, query: Unresolved) -> Node:
    """The SELECT expression to which ``node`` refers by position or alias; else ``node`` itself."""
    items = query.items
    if isinstance(node, exp.Literal) and not node.is_string and str(node.this).isdecimal():
        if 1 <= int(str(node.this)) <= len(items):
            return items[int(str(node.this)) - 1].node or node
    elif isinstance(node, exp.Column) and not node.table:
        for item in items:
            if item.node is not None and (item.name or "").lower() == node.name.lower():
                return item.node
    return node


def as_where(conjuncts: Iterable[Node]) -> Node:
    """The conjunction of ``conjuncts``, marked as the condition of a WHERE clause."""
    made: Node = exp.Where(this=all_of(conjuncts)).this
    return made


def all_of(conjuncts: Iterable[Node]) -> Node:
    """The conjunction of copies of ``conjuncts`` of a subquery."""
    inside = (exp.Paren(this=n.copy()) if isinstance(n, exp.Or) else n.copy() for n in conjuncts)
    return conjunction(inside)


def count_of(node: Node) -> int:
    """The value of an integer literal, such as a LIMIT of a subquery; -1 for others."""
    text = str(node.this) if isinstance(node, exp.Literal) else ""
    return int(text) if text.isdecimal() else -1


def _with_outer(node: Node, refer: Referring) -> Node:
    """A copy of ``node`` in which columns of the outer query are replaced and marked as such."""

    def found(part: Node) -> Node:
        outer = refer(part) if isinstance(part, exp.Column) else None
        if outer is None:
            return part
        made = called(outer.copy(), describe(part))
        for column in columns_in(made):
            column.meta[OUTER] = True
        return made

    return replaced(node, found)
