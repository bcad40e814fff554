"""Combination of several one-row aggregate subqueries of one FROM to a single one over a union.

``(SELECT count(*) AS n FROM a) x, (SELECT sum(v) AS s FROM b) y, …`` has one row. The cost of this
join grows exponentially with the number of subqueries: a batch replaces the row of each subquery,
and the changes of the join are all combinations of old and new rows. So the subqueries become

    (SELECT count(c1) AS n, sum(c2) AS s, … FROM
       (SELECT 1 AS c1, NULL AS c2 FROM a UNION ALL SELECT NULL, v FROM b UNION ALL …))

which has the same result, because these aggregates ignore NULL. Aggregates of the same join share a
branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.aggregates import AggregateCall, call_of
from anabranch_planner.sql.named import with_entries, within
from anabranch_planner.sql.unresolved import (
    Condition,
    FromEntry,
    Node,
    PostJoin,
    SelectItem,
    Unresolved,
)
from anabranch_planner.subqueries.join_parts import with_expressions
from anabranch_planner.subqueries.joins import as_where
from anabranch_planner.subqueries.names import column_of, replaced

#: Minimum number of such subqueries that are combined; two have few combinations of rows.
_LEAST = 3
#: Maximum number of joins in the union, equal to that of a statement (``normal.branches``).
_MOST = 32
#: Aggregate functions of one argument that ignore NULL.
_IGNORING = frozenset({"avg", "count", "max", "mean", "min", "std", "stddev", "stddev_pop",
                       "stddev_samp", "sum", "var_pop", "var_samp", "variance"})  # fmt: skip


def with_single_rows(query: Unresolved) -> Unresolved:
    """``query`` with the one-row aggregate subqueries of a FROM combined to one subquery."""

    def everywhere(one: Unresolved) -> Unresolved:
        return _together(with_entries(one, inside))

    inside = within(everywhere)
    return everywhere(query)


def _together(query: Unresolved) -> Unresolved:
    places = [n for n, entry in enumerate(query.sources) if _is_single(entry)]
    items = [item for item in query.items if item.node is None]
    contiguous = places == list(range(places[0], places[-1] + 1)) if places else True
    if len(places) < _LEAST or any(item.qualifier for item in items):
        return query
    if items and not contiguous:
        return query
    whole = _Whole()
    for place in places:
        whole.add(query.sources[place])
    if len(whole.branches) > _MOST or (items and whole.is_ambiguous):
        return query
    return whole.instead(query, places)


def _is_single(entry: FromEntry) -> bool:
    """Whether an entry of FROM is a subquery that aggregates its whole join to one row."""
    query = entry.of
    if isinstance(query, str) or not entry.alias or entry.columns or entry.using or entry.natural:
        return False
    if query.nested is None or query.post_join != PostJoin():
        return False
    if query.outer or query.subqueries or query.branches or query.generators or query.has_union:
        return False
    return all(item.node is not None and item.name and _is_plain(item.node) for item in query.items)


def _is_plain(node: Node) -> bool:
    """Whether a subquery's expression reads columns only inside supported aggregates."""
    pending = [node]
    while pending:
        part = pending.pop()
        try:
            call = call_of(part)
        except QueryError:
            return False
        if call is None:
            if isinstance(part, exp.Column | exp.Window | exp.Query):
                return False
            pending += part.iter_expressions()
        elif not _ignores_null(call) or call.node is not part:
            return False
    return True


def _ignores_null(call: AggregateCall) -> bool:
    if call.name not in _IGNORING or len(call.arguments) != 1 or call.parts != call.arguments:
        return False
    whole = isinstance(call.arguments[0], exp.Star)
    return not whole or (call.name == "count" and not call.distinct)


@dataclass(slots=True)
class _Whole:
    """The subquery that replaces several one-row subqueries.

    Attributes:
        branches: the joins of its UNION ALL, each with its columns: name -> aggregated expression.
        items: the SELECT list. ``names``: (alias, column) of a replaced subquery -> new column.
    """

    branches: list[tuple[Unresolved, dict[str, Node]]] = field(default_factory=list)
    items: list[SelectItem] = field(default_factory=list)
    names: dict[tuple[str, str], str] = field(default_factory=dict)

    @property
    def is_ambiguous(self) -> bool:
        """Whether two replaced subqueries have columns with the same name."""
        return any(name != column for (_, column), name in self.names.items())

    def add(self, entry: FromEntry) -> None:
        """Add the one-row subquery ``entry`` to the combined one."""
        query = entry.of
        assert isinstance(query, Unresolved)
        own = self._branch(query)
        for item in query.items:
            assert item.node is not None
            assert item.name
            name = column = item.name.lower()
            while name in self.names.values():
                name = f"{(entry.alias or '').lower()}_{name}"
            self.names[(entry.alias or "").lower(), column] = name
            shown = item.name if name == column else name
            self.items.append(SelectItem(self._over(item.node, own), shown))

    def _branch(self, query: Unresolved) -> dict[str, Node]:
        for known, columns in self.branches:
            if (known.sources, known.conditions) == (query.sources, query.conditions):
                return columns
        self.branches.append((query, {}))
        return self.branches[-1][1]

    def _over(self, node: Node, columns: dict[str, Node]) -> Node:
        """A subquery's ``node`` with aggregates over columns of the union in place of its own."""

        def found(part: Node) -> Node:
            call = call_of(part)
            return part if call is None else self._aggregate(call, columns)

        return replaced(node, found)

    def _aggregate(self, call: AggregateCall, columns: dict[str, Node]) -> Node:
        argument = call.arguments[0]
        value = exp.Literal.number(1) if isinstance(argument, exp.Star) else argument
        name = next((name for name, one in columns.items() if one == value), None)
        if name is None:
            name = f"c{sum(len(some) for _, some in self.branches) + 1}"
            columns[name] = value.copy()
        column: Node = column_of("united", name)
        if call.distinct:
            column = exp.Distinct(expressions=[column])
        return exp.Anonymous(this=call.name, expressions=[column])

    def instead(self, query: Unresolved, places: list[int]) -> Unresolved:
        """``query`` with this combined subquery in place of its sources at ``places``."""
        first, node = places[0], query.sources[places[0]].node
        taken = {(entry.alias or "").lower() for entry in query.entries}
        alias = next(a for n in range(len(taken) + 1) if (a := f"whole{n or ''}") not in taken)
        entry = FromEntry(self._query(node), alias, node=node, crossed=True)
        kept = [n for n in range(len(query.sources)) if n not in places[1:]]
        sources = tuple(entry if n == first else query.sources[n] for n in kept)

        def meant(part: Node) -> Node:
            if not isinstance(part, exp.Column):
                return part
            name = self.names.get((part.table.lower(), part.name.lower()))
            return part if name is None else column_of(alias, name, part)

        def over(one: Node) -> Node:
            return replaced(one, meant)

        conditions = []
        for condition in query.conditions:
            where = isinstance(condition.node.parent, exp.Where)
            made = over(condition.node)
            scope = sum(n < condition.scope for n in kept)
            made = as_where([made]) if where else made
            conditions.append(Condition(made, scope, condition.field))
        outer = tuple(
            replace(side, on=None if side.on is None else over(side.on)) for side in query.outer
        )
        named = replace(query, conditions=())
        made_query = with_expressions(named, over)
        return replace(made_query, sources=sources, conditions=tuple(conditions), outer=outer)

    def _query(self, node: Node | None) -> Unresolved:
        branches = tuple(FromEntry(one, "", node=node) for one in self._operands())
        union = Unresolved((), (), (), branches=branches)
        source = FromEntry(union, "united", node=node)
        nested = ("an aggregate", node)
        return Unresolved((source,), (), tuple(self.items), PostJoin(), nested=nested)

    def _operands(self) -> Iterator[Unresolved]:
        names: Mapping[str, int] = {
            name: n for n, (_, columns) in enumerate(self.branches) for name in columns
        }
        for number, (query, columns) in enumerate(self.branches):
            items = tuple(
                SelectItem(columns[name] if n == number else exp.Null(), name)
                for name, n in names.items()
            )
            yield replace(query, items=items, post_join=None, nested=None)
