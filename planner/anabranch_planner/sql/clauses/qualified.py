"""Rewriting of QUALIFY as WHERE over a query of WITH that has the condition's window functions as
columns.

A condition that only limits one ranking of rows is not rewritten, because a maintained table
computes such rankings itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from sqlglot import exp

from anabranch_planner.sql.aggregates import PLACES, function_over, holds_aggregate, windows_in
from anabranch_planner.sql.clauses.partition_totals import (
    LAST,
    become,
    stands_as_table,
    take_last,
    unaliased,
)
from anabranch_planner.sql.unresolved import Node, at, bare

_QUALIFIED = "anabranch_qualified"
_MIRRORED: dict[type[Node], type[Node]] = {
    exp.GT: exp.LT,
    exp.GTE: exp.LTE,
    exp.LT: exp.GT,
    exp.LTE: exp.GTE,
    exp.EQ: exp.EQ,
}


def filter_windows(statement: Node) -> None:
    """Replace every QUALIFY in ``statement`` that filters groups, is followed by DISTINCT, ORDER BY
    or LIMIT, or does more than limit one ranking."""
    for select in reversed(list(statement.find_all(exp.Select))):
        clause = select.args.get("qualify")
        if clause is None or not stands_as_table(select) or _limits_rows(select, clause.this):
            continue
        parts = (clause.this, *select.expressions)
        if not any(True for part in parts for _ in windows_in(part)):
            continue
        with at(clause):
            _Filtering(select, clause.this).apply()


def _limits_rows(select: exp.Select, condition: Node) -> bool:
    """Whether ``condition`` only limits one ranking of rows, and no later clause reads it."""
    if any(select.args.get(name) for name in LAST):
        return False
    if select.args.get("group") is not None or any(map(holds_aggregate, select.expressions)):
        return False
    aliases = {item.alias_or_name.lower(): item for item in select.expressions}

    def ranked(node: Node) -> Node | None:
        if isinstance(node, exp.Column) and not node.table:
            node = unaliased(aliases.get(node.name.lower(), node))
        return node if function_over(node) in PLACES else None

    return limit_of(condition, ranked) is not None


def limit_of(condition: Node, ranked: Callable[[Node], Node | None]) -> tuple[Node, int] | None:
    """The ranking that ``condition`` limits, and the greatest rank; None for other conditions."""
    node = bare(condition)
    if isinstance(node, exp.Between):
        window, low, high = ranked(bare(node.this)), whole_number(node.args["low"]), None
        high = whole_number(node.args["high"])
        return None if window is None or low != 1 or high is None else (window, high)
    if type(node) not in _MIRRORED:
        return None
    kind: type[Node] = type(node)
    window, limit = ranked(bare(node.this)), whole_number(node.expression)
    if window is None:
        window, limit = ranked(bare(node.expression)), whole_number(node.this)
        kind = _MIRRORED[kind]
    if window is None or limit is None:
        return None
    if kind is exp.LTE or (kind is exp.EQ and limit == 1):
        return window, limit
    return (window, max(limit - 1, 0)) if kind is exp.LT else None


def whole_number(node: Node) -> int | None:
    """The value of a literal in QUALIFY without fraction or sign; None for other expressions."""
    inside = bare(node)
    text = str(inside.this) if isinstance(inside, exp.Literal) and not inside.is_string else ""
    return int(text) if text.isdecimal() and len(text) < 10 else None


@dataclass(slots=True)
class _Filtering:
    """Rewriting of one SELECT with QUALIFY.

    Attributes:
        hidden: function, aggregate or column that only the condition reads -> its column's name.
    """

    select: exp.Select
    condition: Node
    hidden: dict[Node, str] = field(default_factory=dict)

    def apply(self) -> None:
        """Replace the SELECT in place by a SELECT with WHERE over a query of WITH."""
        select = self.select
        shown = {
            unaliased(item): item.alias_or_name for item in select.expressions if item.alias_or_name
        }
        names = {name.lower() for name in shown.values()}

        def outside(node: Node) -> Node:
            return self._outside(node, shown, names)

        condition = self.condition.copy().transform(outside)
        rows = select.copy()
        order = rows.args.get("order")
        for entry in [] if order is None else order.expressions:
            entry.set("this", entry.this.transform(outside))
        listed = [exp.alias_(node, name, quoted=True) for node, name in self.hidden.items()]
        rows.set("expressions", [*rows.expressions, *listed])
        rows.set("qualify", None)
        star = exp.Star()
        if self.hidden:
            star.set("except_", [exp.column(name) for name in self.hidden.values()])
        outer = exp.Select(expressions=[star]).from_(exp.to_table(_QUALIFIED), copy=False)
        outer.set("where", exp.Where(this=condition))
        take_last(rows, outer)
        become(select, outer, [(_QUALIFIED, rows)])

    def _outside(self, node: Node, shown: dict[Node, str], names: set[str]) -> Node:
        """``node`` with the columns of the query of WITH in place of expressions it computes."""
        inside = function_over(node) or (
            holds_aggregate(node) and not any(map(holds_aggregate, node.iter_expressions()))
        )
        if isinstance(node, exp.Column) and not node.table and node.name.lower() in names:
            return node
        if not inside and not isinstance(node, exp.Column):
            return node
        name = shown.get(node)
        if name is None:
            name = self.hidden.setdefault(node.copy(), f"{_QUALIFIED}{len(self.hidden) + 1}")
        return exp.column(name, quoted=True)
