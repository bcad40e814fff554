"""A grouped subquery as an entry of FROM, whose columns are its keys and aggregates.

Expressions over its groups become expressions over these columns. Used for scalar subqueries
(grouped by the columns that correlate them), for subqueries with GROUP BY, and for the groups of a
statement with subqueries in its HAVING.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_planner.sql.aggregates import call_of, holds_aggregate
from anabranch_planner.sql.unresolved import (
    SUBQUERY,
    FromEntry,
    Node,
    PostJoin,
    SelectItem,
    Unresolved,
    at,
    called,
    describe,
    unsupported,
)
from anabranch_planner.subqueries.names import FromTables, column_of, columns_in, replaced

#: Aggregates that are 0 over no rows; all others are NULL.
_COUNTS = frozenset({"count", "count_if", "countif", "approx_count_distinct"})
#: Nodes that are NULL if one of their operands is; not BETWEEN, which may be false.
STRICT = (
    exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Not, exp.Paren, exp.Neg, exp.Add,
    exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.Cast,
)  # fmt: skip
#: Nodes permitted inside :data:`STRICT` nodes, because they do not turn NULL into another value.
PARTS = (exp.Column, exp.Literal, exp.Null, exp.Boolean, exp.Identifier, exp.DataType,
          exp.DataTypeParam, exp.Interval, exp.Var)  # fmt: skip


@dataclass(slots=True)
class GroupedEntry:
    """The groups of a subquery by ``keys``, as an entry of FROM under ``alias``.

    Attributes:
        query: FROM and conditions of the grouped rows; other clauses are ignored.
        tables: tables of ``query``. ``keys``: qualified expressions over them; empty: one group.
        refer: maps an outer column to the expression that replaces it; None for other columns.
        having: condition that the groups satisfy, over the query's own tables.
        values: column name -> aggregate, for all aggregates that have been read so far.
    """

    query: Unresolved
    tables: FromTables
    keys: Sequence[Node]
    alias: str
    refer: Callable[[exp.Column], Node | None]
    having: Node | None = None
    values: dict[str, Node] = field(default_factory=dict)

    def key(self, number: int) -> exp.Column:
        """The grouped subquery's column for key ``number``, from 0; without keys a constant."""
        return column_of(self.alias, f"subquery_key{number + 1}")

    def over(self, node: Node, *, zeros: bool = False) -> Node:
        """Rewrite ``node``, an expression over groups, over the columns of the entry.

        Args:
            zeros: whether a count is 0 instead of NULL if there is no group.

        Raises:
            QueryError: ``not-grouped``, or an aggregate reads the outer query.
        """

        def found(part: Node) -> Node:
            if part in self.keys:
                return called(self.key(list(self.keys).index(part)), describe(part))
            with at(part):
                call = call_of(part)
            if call is not None:
                made: Node = column_of(self.alias, self._value(part))
                if zeros and call.name in _COUNTS:
                    zero = exp.Literal.number(0)
                    made = exp.Anonymous(this="coalesce", expressions=[made, zero])
                return called(made, describe(part))
            if not isinstance(part, exp.Column):
                return part
            outer = self.refer(part)
            if outer is None:
                with at(part):
                    raise QueryError(
                        "not-grouped",
                        f"{describe(part)} is neither grouped by nor aggregated",
                        remedy="aggregate it, e.g. with max()",
                    )
            return outer

        return replaced(self.tables.qualified(node), found)

    def _value(self, call: Node) -> str:
        for column in columns_in(call):
            if self.refer(column) is not None:
                with at(column):
                    raise unsupported(
                        f"{describe(column)}, a column of the outer query, in an aggregate",
                        "move it out of the aggregate, e.g. a.x * sum(b.y)",
                    )
        known = next((name for name, one in self.values.items() if one == call), None)
        if known is None:
            known = f"subquery_value{len(self.values) + 1}"
            self.values[known] = call.copy()
        return known

    def entry(self, node: Node | None) -> FromEntry:
        """The entry of FROM, once all expressions over it are known; ``node``: its place in SQL."""
        items = [
            *(SelectItem(key.copy(), f"subquery_key{n}") for n, key in enumerate(self.keys, 1)),
            *(SelectItem(call, name) for name, call in self.values.items()),
        ]
        if not self.keys:
            # The only group has no key: join it by a comparison with a constant.
            items = [SelectItem(exp.Literal.number(1), "subquery_key1"), *items]
        group = tuple(key.copy() for key in self.keys) or None
        query = replace(
            self.query,
            items=tuple(items),
            post_join=PostJoin(group=group, having=self.having),
            nested=("an aggregate", node),
        )
        return FromEntry(query, self.alias, node=node)


def is_strict(value: Node) -> bool:
    """Whether ``value``, an expression over a subquery's groups, is NULL for an empty group."""
    for part in value.walk(prune=lambda part: call_of(part) is not None):
        call = call_of(part)
        if call is not None and call.name in _COUNTS:
            return False
        if call is None and not isinstance(part, (*STRICT, *PARTS)):
            return False
    return holds_aggregate(value)


def is_strict_in(condition: Node, number: int) -> bool:
    """Whether ``condition`` can't be true if its subquery with this ``number`` is NULL."""
    holder = next(n for n in condition.walk() if n.meta.get(SUBQUERY) == number)
    inside = all(isinstance(part, STRICT) for part in parents(holder, condition)[:-1])
    return inside and isinstance(condition, (*STRICT, exp.Between))


def parents(node: Node, last: Node) -> list[Node]:
    """The syntax nodes around a subquery ``node``, up to ``last``, the innermost first."""
    found: list[Node] = []
    while node is not last and node.parent is not None:
        node = node.parent
        found.append(node)
    return found
