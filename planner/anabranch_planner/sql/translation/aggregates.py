"""Translation rules for aggregates, grouping sets and rankings of other dialects.

Calls are generated as plain functions in Spark's spelling, because sqlglot's translations of
percentiles and lists have other results.
"""

from __future__ import annotations

from collections.abc import Callable

from sqlglot import exp

from anabranch_contract.queries.types import INTEGRAL, TypeKind
from anabranch_planner.sql.translation.kinds import PAIR_NODES, Types
from anabranch_planner.sql.translation.meanings import Meanings
from anabranch_planner.sql.translation.rules import SPARKS, DialectRules, call_of
from anabranch_planner.sql.unresolved import Node, as_written

_UNARY = frozenset({"this"})
_BINARY = frozenset({"this", "expression"})
_DOUBLE = frozenset({TypeKind.DOUBLE})
_LISTED = INTEGRAL | {TypeKind.STRING}
#: Node type of an aggregate -> the arguments that are translated.
READ: dict[type[Node], frozenset[str]] = {
    **dict.fromkeys((exp.AnyValue, exp.First, exp.Last, exp.Median), _UNARY),
    **dict.fromkeys(
        (exp.ArgMax, exp.ArgMin, exp.PercentileCont, exp.PercentileDisc, exp.RegrCount,
         exp.WithinGroup, *PAIR_NODES),
        _BINARY,
    ),
    # The value of ``null_on_zero_variance`` depends on the dialect, not on the statement.
    exp.Corr: _BINARY | {"null_on_zero_variance"},
    exp.IgnoreNulls: _UNARY,
    exp.ApproxDistinct: _UNARY | {"accuracy"},
    exp.ApproxQuantile: _UNARY | {"quantile", "accuracy", "error_tolerance"},
    exp.Quantile: _UNARY | {"quantile"},
    exp.GroupConcat: _UNARY | {"separator"},
    exp.Grouping: frozenset({"expressions"}),
    exp.GroupingId: frozenset({"expressions"}),
    **dict.fromkeys((exp.Lag, exp.Lead), frozenset({"this", "offset", "default"})),
    exp.RowNumber: _UNARY,
    exp.Rank: frozenset({"expressions"}),
    exp.DenseRank: frozenset({"expressions"}),
}  # fmt: skip


class AggregateRules(DialectRules):
    """Translation rules for the aggregates of one statement, by type of syntax node."""

    def __init__(self, dialect: str, meanings: Meanings, types: Types) -> None:
        super().__init__(dialect, types)
        self._meanings, self._outer_nulls = meanings.aggregates, meanings.outer_nulls
        self.by_type: dict[type[Node], Callable[[Node], Node]] = {
            exp.ArgMax: self._by,
            exp.ArgMin: self._by,
            exp.AnyValue: self._any,
            exp.First: self._any,
            exp.Last: self._any,
            exp.IgnoreNulls: self._ignoring,
            exp.ApproxDistinct: lambda node: call_of("approx_count_distinct", node.this),
            exp.Median: lambda node: self._continuous(node, node.this, None),
            exp.PercentileCont: self._percentile,
            exp.PercentileDisc: self._percentile,
            exp.Quantile: self._quantile,
            exp.ApproxQuantile: self._approximate,
            exp.WithinGroup: self._within_group,
            exp.GroupConcat: self._list,
            **dict.fromkeys((exp.RegrCount, *PAIR_NODES), self._pair),
            exp.Distinct: self._distinct,
            exp.Grouping: self._grouping,
            exp.Rollup: self._sets,
            exp.Cube: self._sets,
            exp.GroupingSets: self._sets,
        }

    def _by(self, node: Node) -> Node:
        """Translate ``max_by`` or ``min_by``, which differ between dialects in NULLs."""
        name = "max_by" if isinstance(node, exp.ArgMax) else "min_by"
        skips = self._meanings.by_skips_nulls
        if skips is None:
            raise self._refused(f"{name}()", SPARKS)
        value, by = node.this.copy(), node.expression.copy()
        if skips:
            known = exp.Not(this=exp.Is(this=value.copy(), expression=exp.Null()))
            by = exp.Case(ifs=[exp.If(this=known, true=by)])
        return call_of(name, value, by)

    def _any(self, node: Node) -> Node:
        if isinstance(node.this, exp.Order | exp.Distinct):
            name = _name(node)
            raise self._refused(f"{name}() with an order", "write min_by(x, y) or max_by(x, y)")
        return call_of("any_value", node.this)

    def _ignoring(self, node: Node) -> Node:
        if isinstance(node.this, exp.Lag | exp.Lead) and isinstance(node.parent, exp.Window):
            return node
        # Drop IGNORE NULLS after any_value(): as a minimum it ignores NULLs anyway.
        if not isinstance(node.this, exp.Anonymous) or node.this.name != "any_value":
            raise self._refused("IGNORE NULLS", "leave it out")
        return node.this.copy()

    # --- percentiles -----------------------------------------------------------------------------

    def _continuous(self, node: Node, value: Node, fraction: Node | None) -> Node:
        kinds = self._types.of(value)
        if not kinds or not kinds <= self._meanings.continuous:
            raise self._refused(
                f"{_name(node)}() of an expression that is possibly not a double",
                f"write CAST({as_written(value)} AS DOUBLE) in it",
            )
        if fraction is None:
            return call_of("median", value)
        return call_of("percentile", value, fraction)

    def _percentile(self, node: Node) -> Node:
        """Translate ``quantile_cont(x, p)``, unless the rule of WITHIN GROUP does so."""
        fraction = node.args.get("expression")
        if isinstance(node.parent, exp.WithinGroup):
            return node
        if fraction is None:
            raise self._refused(f"{_name(node)}() without WITHIN GROUP", SPARKS)
        if isinstance(node, exp.PercentileCont):
            return self._continuous(node, node.this, fraction)
        return call_of("percentile_approx", node.this, fraction)

    def _quantile(self, node: Node) -> Node:
        if not self._meanings.quantile_is_discrete:
            raise self._refused("quantile()", "write percentile_cont or percentile_disc")
        return call_of("percentile_approx", node.this, node.args["quantile"])

    def _approximate(self, node: Node) -> Node:
        if not self._meanings.approximate_of_type and self._types.of(node.this) != _DOUBLE:
            raise self._refused(
                "an approximate percentile of an expression that is possibly not a double",
                "write CAST(x AS DOUBLE) in it",
            )
        return call_of("percentile_approx", node.this, node.args["quantile"])

    def _within_group(self, node: Node) -> Node:
        call, order = node.this, node.expression.expressions
        if isinstance(call, exp.Anonymous):
            return node
        if isinstance(call, exp.ArrayAgg):
            keys = [one.copy() for one in order]
            return exp.ArrayAgg(this=exp.Order(this=call.this.copy(), expressions=keys))
        if not isinstance(call, exp.PercentileCont | exp.PercentileDisc) or len(order) != 1:
            raise self._refused("WITHIN GROUP of this function", SPARKS)
        value, descending = order[0].this, bool(order[0].args.get("desc"))
        if isinstance(call, exp.PercentileDisc):
            # The result has the type of the values, as with Spark's percentile_approx.
            if not descending:
                return call_of("percentile_approx", value, call.this)
            if self._types.of(value) != _DOUBLE:
                raise self._refused(
                    "percentile_disc() in descending order of an expression that may not be a "
                    "double",
                    "write CAST(x AS DOUBLE) in it",
                )
            name = "percentile_disc"
        else:
            self._continuous(call, value, call.this)
            name = "percentile_cont"
        by = exp.Ordered(this=value.copy(), desc=descending, nulls_first=not descending)
        return exp.WithinGroup(
            this=call_of(name, call.this), expression=exp.Order(expressions=[by])
        )

    # --- texts and pairs -------------------------------------------------------------------------

    def _list(self, node: Node) -> Node:
        """Translate ``string_agg`` and other lists of texts to ``listagg``."""
        name, separator = "listagg", node.args.get("separator")
        # In Snowflake the list of no texts is the empty text; coalesce() has no OVER.
        is_empty = self._dialect == "snowflake" and not isinstance(node.parent, exp.Window)
        if separator is None and self._meanings.list_separator is not None:
            separator = exp.Literal.string(self._meanings.list_separator)
        can_list = self._meanings.lists or is_empty
        if not can_list or separator is None:
            raise self._refused(
                f"{name}()" if not can_list else f"{name}() without a separator",
                SPARKS if not can_list else "write the separator",
            )
        value, order = node.this, None
        if isinstance(value, exp.Order):
            order, value = value, value.this
        distinct = isinstance(value, exp.Distinct)
        if isinstance(value, exp.Distinct):
            inner = value.expressions[0]
            if isinstance(inner, exp.Order):
                order, inner = inner, inner.this
            value = inner
        if is_empty and not (self._types.of(value) and self._types.of(value) <= _LISTED):
            raise self._refused(f"{name}() of an expression that may not be a text", SPARKS)
        if distinct:
            made = call_of(name, exp.Distinct(expressions=[value.copy(), separator.copy()]))
        else:
            made = call_of(name, value, separator)
        whole: Node = made
        if order is not None:
            by = exp.Order(expressions=[entry.copy() for entry in order.expressions])
            whole = exp.WithinGroup(this=made, expression=by)
        return call_of("coalesce", whole, exp.Literal.string("")) if is_empty else whole

    def _pair(self, node: Node) -> Node:
        """Translate a correlation, covariance or regression of two numbers."""
        name, sides = _name(node), [side for side in (node.this, node.expression) if side]
        if not self._meanings.pairs and any(self._types.of(side) != _DOUBLE for side in sides):
            raise self._refused(
                f"{name}() of an expression that is possibly not a double",
                "write CAST(x AS DOUBLE) in it",
            )
        return call_of(name, *sides)

    # --- groups ----------------------------------------------------------------------------------

    def _distinct(self, node: Node) -> Node:
        if node.args.get("on") is not None and not self._meanings.distinct_on:
            raise self._refused(
                "DISTINCT ON", "write QUALIFY row_number() OVER (PARTITION BY k ORDER BY x) = 1"
            )
        return node

    def _grouping(self, node: Node) -> Node:
        # With several keys, the result is a number with a bit for each key.
        name = "grouping" if len(node.expressions) == 1 else "grouping_id"
        return call_of(name, *node.expressions)

    def _sets(self, node: Node) -> Node:
        """Reject grouping sets whose missing keys are not NULL in this dialect."""
        if not self._outer_nulls:
            raise self._refused("a grouping set, whose other keys are not NULL", SPARKS)
        return node


def _name(node: Node) -> str:
    return node.sql_name().lower() if isinstance(node, exp.Func) else type(node).__name__.lower()
