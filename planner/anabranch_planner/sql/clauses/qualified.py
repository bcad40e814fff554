"""QUALIFY as WHERE over a query of WITH, which has the functions of the condition as columns.

A condition that limits one ranking of rows stays: its rows are kept by a table of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from sqlglot import exp

from anabranch_planner.sql.aggregates import PLACES, function_over, holds_aggregate, windows_in
from anabranch_planner.sql.clauses.partition_totals import LAST, cte, stands_as_table
from anabranch_planner.sql.unresolved import Node, at

_QUALIFIED = "anabranch_qualified"


def filter_windows(statement: Node) -> None:
    """Replace the clauses QUALIFY in ``statement`` over groups, beside DISTINCT, ORDER BY or LIMIT,
    or with another condition than a limit of one ranking.
    """
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
    """Whether ``condition`` limits one ranking of rows, and no other clause reads them."""
    if any(select.args.get(name) for name in LAST):
        return False
    if select.args.get("group") is not None or any(map(holds_aggregate, select.expressions)):
        return False
    while isinstance(condition, exp.Paren):
        condition = condition.this
    least, place, most = _places(condition)
    aliases = {item.alias_or_name.lower(): item for item in select.expressions}
    if isinstance(place, exp.Column) and not place.table:
        place = aliases.get(place.name.lower(), place)
    ranking = place.this if isinstance(place, exp.Alias) else place
    limited = isinstance(most, exp.Literal) and not most.is_string and most.name.isdecimal()
    return function_over(ranking) in PLACES and limited and (least is None or least.name == "1")


def _places(condition: Node) -> tuple[Node | None, Node | None, Node | None]:
    """The least and greatest value of a comparison, and what it limits, in the middle; None: no
    such value, or another condition.
    """
    if isinstance(condition, exp.Between):
        return condition.args["low"], condition.this, condition.args["high"]
    if isinstance(condition, exp.LT | exp.LTE):
        return None, condition.this, condition.expression
    if isinstance(condition, exp.GT | exp.GTE):
        return None, condition.expression, condition.this
    if isinstance(condition, exp.EQ):
        number, place = condition.this, condition.expression
        if not isinstance(number, exp.Literal):
            number, place = place, number
        return number, place, number
    return None, None, None


@dataclass(slots=True)
class _Filtering:
    """Rewriting of one SELECT.

    Attributes:
        hidden: function, aggregate or column that only the condition reads -> its name.
    """

    select: exp.Select
    condition: Node
    hidden: dict[Node, str] = field(default_factory=dict)

    def apply(self) -> None:
        """Rewrite the SELECT in place."""
        select = self.select
        shown = {
            (item.this if isinstance(item, exp.Alias) else item): item.alias_or_name
            for item in select.expressions
            if item.alias_or_name
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
        for name in LAST:
            outer.set(name, rows.args.get(name))
            rows.set(name, None)
        clause = rows.args.get("with_")
        rows.set("with_", None)
        known = [] if clause is None else list(clause.expressions)
        outer.set("with_", exp.With(expressions=[*known, cte(_QUALIFIED, rows)]))
        for name in list(select.args):
            select.set(name, None)
        for name, value in list(outer.args.items()):
            select.set(name, value)

    def _outside(self, node: Node, shown: dict[Node, str], names: set[str]) -> Node:
        """``node`` as a column of the query of WITH, if it is computed there."""
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
