"""Aggregates over partitions, ``sum(x) OVER (PARTITION BY k)``, as joins with groups; rankings of
groups as rankings of a query of WITH.

``; it also compares => A SELECT with such items becomes a join of queries of WITH: one with the
rows, without these items, and one per list of partition keys, with the aggregates grouped by the
keys. The rows with a NULL key are a partition, too, so the join compares keys with ``<=>``. It also
compares=>``; it also compares a hash of the keys with ``=``, because every join needs an equality.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.aggregates import (
    PLACES,
    WINDOWED,
    function_over,
    holds_aggregate,
    is_total,
    windows_in,
)
from anabranch_planner.sql.unresolved import Node, at, describe

_ROWS, _GROUPS = "anabranch_rows", "anabranch_groups"
#: Clauses that apply to the result of the join, and so move to the outer SELECT.
LAST = ("distinct", "order", "limit", "offset")
#: Types of nodes that belong to a call with OVER.
_OVER = (exp.Window, exp.IgnoreNulls, exp.RespectNulls, exp.Filter)
_IN_FROM = (exp.From, exp.Join, exp.CTE, exp.SetOperation, exp.Subquery)


def write_out(statement: Node) -> None:
    """Replace the SELECTs with aggregates over partitions in ``statement`` by joins.

    Raises:
        QueryError: ``unnamed-output``: another item of such a SELECT has no name.
    """
    for select in reversed(list(statement.find_all(exp.Select))):
        items = select.expressions
        grouped = select.args.get("group") is not None or any(map(holds_aggregate, items))
        late = _totals(items) or (grouped and any(map(_rankings, items)))
        if late and can_be_table(select):
            with at(select):
                _Rewriting(select, grouped=grouped).apply()


def _totals(nodes: list[Node]) -> list[Node]:
    """The SQL aggregates over partitions in ``nodes``, outside of subqueries."""
    return [window for node in nodes for window in windows_in(node) if is_total(window)]


def _rankings(node: Node) -> list[Node]:
    return [window for window in windows_in(node) if is_ordered(window)]


def is_ordered(window: Node) -> bool:
    """Whether the value of ``window`` depends on the order of rows in their partition."""
    return function_over(window) in PLACES | WINDOWED.keys() and not is_total(window)


def can_be_table(select: exp.Select) -> bool:
    """Whether ``select`` has no QUALIFY or ``*``, and is in FROM, in WITH or a statement."""
    stars = any(_is_star(node) for node in select.expressions)
    distinct = select.args.get("distinct")
    on = distinct is not None and distinct.args.get("on")
    return not (select.args.get("qualify") or stars or on) and stands_as_table(select)


def stands_as_table(select: exp.Select) -> bool:
    """Whether ``select`` is in FROM, in WITH or the whole statement."""
    inner: Node = select
    while inner.parent is not None:
        if isinstance(inner.parent, exp.Select):
            # A subquery in FROM never reads columns of the queries around it.
            return inner.arg_key in ("from_", "joins", "with_")
        if not isinstance(inner.parent, (*_IN_FROM, exp.With, exp.Paren)):
            return False
        inner = inner.parent
    return True


def _is_star(item: Node) -> bool:
    return isinstance(item.this if isinstance(item, exp.Column) else item, exp.Star)


@dataclass(slots=True)
class _Rewriting:
    """Rewriting of one SELECT with aggregates over partitions.

    Attributes:
        columns: expression over a row -> its column in the WITH query that has the rows.
        grouped: whether the SELECT has GROUP BY, so that rankings rank its groups.
        groups: partition keys -> aggregate -> its column in the WITH query grouped by them.
    """

    select: exp.Select
    grouped: bool
    columns: dict[Node, str] = field(default_factory=dict)
    groups: dict[tuple[Node, ...], dict[Node, str]] = field(default_factory=dict)

    def apply(self) -> None:
        """Replace the SELECT in place by the join of queries of WITH."""
        named = [(_name(item), unaliased(item)) for item in self.select.expressions]
        rows = self.select.copy()
        for name, node in named:
            if not self._is_late(node):
                self.columns.setdefault(node, name)
        self._write_out_ordinals(rows, [node for _, node in named])
        items = [exp.alias_(self._outside(node), name, quoted=True) for name, node in named]
        names = {name.lower() for name, _ in named}
        order = rows.args.get("order")
        for entry in [] if order is None else order.expressions:
            self._order(entry, names)
        outer = exp.Select(expressions=items).from_(exp.to_table(_ROWS), copy=False)
        queries = []
        for number, (keys, aggregates) in enumerate(self.groups.items(), 1):
            queries.append((f"{_GROUPS}{number}", self._grouped(keys, aggregates)))
            outer.append("joins", self._join(keys, number))
        take_last(rows, outer)
        rows.set(
            "expressions", [exp.alias_(n.copy(), c, quoted=True) for n, c in self.columns.items()]
        )
        become(self.select, outer, [(_ROWS, rows), *queries])

    def _write_out_ordinals(self, rows: exp.Select, nodes: list[Node]) -> None:
        """Replace positions in GROUP BY by the items of the SELECT list that they denote."""
        group = rows.args.get("group")
        for key in [] if group is None else list(group.expressions):
            if isinstance(key, exp.Literal) and not key.is_string and str(key.this).isdecimal():
                place = int(str(key.this)) - 1
                if 0 <= place < len(nodes):
                    key.replace(nodes[place].copy())

    def _order(self, entry: Node, names: set[str]) -> None:
        key = entry.this
        is_alias = isinstance(key, exp.Column) and not key.table and key.name.lower() in names
        if not is_alias and not isinstance(key, exp.Literal):
            entry.set("this", self._outside(key))

    def _outside(self, node: Node) -> Node:
        """``node``, rewritten over the columns of the query of rows and the queries of groups."""
        if isinstance(node, exp.Window) and is_total(node):
            return self._total(node)
        # Syntax nodes that are not expressions themselves: rewrite their children.
        is_part = isinstance(node, exp.If) and isinstance(node.parent, exp.Case)
        is_part |= isinstance(node.parent, _OVER) and node.arg_key == "this"
        if not (self._is_late(node) or is_part or isinstance(node, exp.Order | exp.Ordered)):
            if node.find(exp.Column) is None and not holds_aggregate(node):
                return node.copy()
            return self._column(node)
        made = node.copy()
        for old, child in zip(
            list(node.iter_expressions()), list(made.iter_expressions()), strict=True
        ):
            child.replace(self._outside(old))
        return made

    def _is_late(self, node: Node) -> bool:
        """Whether ``node`` contains an aggregate over a partition, or a ranking of groups."""
        return bool(_totals([node])) or (self.grouped and bool(_rankings(node)))

    def _column(self, node: Node) -> exp.Column:
        name = self.columns.setdefault(node, f"anabranch_c{len(self.columns) + 1}")
        return of(_ROWS, name)

    def _total(self, window: exp.Window) -> exp.Column:
        keys = tuple(window.args.get("partition_by") or ())
        known = self.groups.setdefault(keys, {})
        name = known.setdefault(window.this, f"anabranch_a{len(known) + 1}")
        for arg in (*keys, *window.this.expressions):
            if arg.find(exp.Column) is not None or holds_aggregate(arg):
                self._column(arg)
        return of(f"{_GROUPS}{list(self.groups).index(keys) + 1}", name)

    def _grouped(self, keys: tuple[Node, ...], aggregates: dict[Node, str]) -> exp.Select:
        """The query that computes ``aggregates`` of the rows, grouped by ``keys``."""
        of_keys = [self._column(key) for key in keys]
        items: list[Node] = [
            exp.alias_(key.copy(), f"anabranch_k{n}", quoted=True)
            for n, key in enumerate(of_keys, 1)
        ]
        for call, name in aggregates.items():
            made = call.copy()
            for arg in list(made.expressions):
                if arg.find(exp.Column) is not None or holds_aggregate(arg):
                    arg.replace(self._column(arg))
            items.append(exp.alias_(made, name, quoted=True))
        found = exp.Select(expressions=items).from_(exp.to_table(_ROWS), copy=False)
        if of_keys:
            found.set("group", exp.Group(expressions=of_keys))
        return found

    def _join(self, keys: tuple[Node, ...], number: int) -> exp.Join:
        name = f"{_GROUPS}{number}"
        table = exp.to_table(name)
        if not keys:
            return exp.Join(this=table, kind="CROSS")
        left = [self._column(key) for key in keys]
        right = [of(name, f"anabranch_k{n}") for n in range(1, len(keys) + 1)]
        hashes = [exp.Anonymous(this="hash", expressions=list(side)) for side in (left, right)]
        condition: Node = exp.EQ(this=hashes[0], expression=hashes[1])
        for one, other in zip(left, right, strict=True):
            same = exp.NullSafeEQ(this=one.copy(), expression=other.copy())
            condition = exp.And(this=condition, expression=same)
        return exp.Join(this=table, on=condition)


def _name(item: Node) -> str:
    if isinstance(item, exp.Alias):
        return str(item.alias)
    if isinstance(item, exp.Column):
        return item.name
    raise QueryError(
        "unnamed-output",
        f"{describe(item)} has no name, beside an aggregate over a partition",
        remedy="give it a name with AS",
    )


def unaliased(item: Node) -> Node:
    """The syntax node of an item of a SELECT list, without its alias."""
    node: Node = item.this if isinstance(item, exp.Alias) else item
    return node


def take_last(rows: exp.Select, outer: exp.Select) -> None:
    """Move WITH and the clauses in :data:`LAST` from the SELECT ``rows`` to ``outer``."""
    for name in (*LAST, "with_"):
        outer.set(name, rows.args.get(name))
        rows.set(name, None)


def become(
    select: exp.Select, outer: exp.Select, queries: Iterable[tuple[str, exp.Select]]
) -> None:
    """Replace ``select`` in place by ``outer``, and add ``queries`` (name, query) to its WITH."""
    clause = outer.args.get("with_")
    known = [] if clause is None else list(clause.expressions)
    outer.set("with_", exp.With(expressions=[*known, *(_cte(*one) for one in queries)]))
    for name in list(select.args):
        select.set(name, None)
    for name, value in list(outer.args.items()):
        select.set(name, value)


def of(table: str, name: str) -> exp.Column:
    """The column ``name`` of ``table``, a query of WITH, as a syntax node."""
    return exp.column(exp.to_identifier(name, quoted=True), table=table)


def _cte(name: str, query: exp.Select) -> exp.CTE:
    """The entry of WITH that names ``query``."""
    return exp.CTE(this=query, alias=exp.TableAlias(this=exp.to_identifier(name)))
