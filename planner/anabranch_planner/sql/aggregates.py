"""SQL aggregate functions: names, clauses of a call, and result types as in Spark (ANSI mode)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import DOUBLE, MAX_PRECISION
from anabranch_contract.queries.types import INTEGRAL, INTERVALS, DataType, TypeKind, whole_interval
from anabranch_contract.queries.views import AggregateFunction, WindowFunction
from anabranch_planner.sql.unresolved import Node, SelectItem, unsupported

BIGINT = DataType(TypeKind.BIGINT)
_F = AggregateFunction

#: Name of an aggregate (in Spark or another dialect) -> function that computes it. Some functions
#: are replacements with a valid result: ``any_value`` is the minimum, approximate counts are exact.
AGGREGATES = {
    **{function.value: function for function in _F},
    **dict.fromkeys(("mean", "regr_avgx", "regr_avgy"), _F.AVG),
    **dict.fromkeys(("std", "stddev"), _F.STDDEV_SAMP),
    "variance": _F.VAR_SAMP,
    **dict.fromkeys(("count_if", "countif", "approx_count_distinct", "regr_count"), _F.COUNT),
    **dict.fromkeys(("bool_and", "every"), _F.MIN),
    **dict.fromkeys(("bool_or", "some"), _F.MAX),
    **dict.fromkeys(("any_value", "first", "first_value", "last", "last_value"), _F.MIN),
    "arg_max": _F.MAX_BY,
    "arg_min": _F.MIN_BY,
    **dict.fromkeys(("median", "percentile", "quantile_cont"), _F.PERCENTILE_CONT),
    **dict.fromkeys(
        ("percentile_approx", "approx_percentile", "quantile_disc"), _F.PERCENTILE_DISC
    ),
    "string_agg": _F.LISTAGG,
    **dict.fromkeys(("array_agg", "collect_set"), _F.COLLECT_LIST),
}
#: Spark's aggregates that are not supported -> remedy.
REFUSED = {
    "histogram_numeric": "group by width_bucket(x, low, high, n), and count",
    "try_sum": "write sum(x); of a wider type it does not overflow: sum(CAST(x AS DECIMAL(38, 0)))",
    "try_avg": "write avg(x)",
}
#: Aggregate functions that accept ORDER BY in the call, or WITHIN GROUP.
_ORDERED = frozenset({
    "array_agg", "collect_list", "listagg", "mode", "percentile_cont", "percentile_disc",
    "string_agg",
})  # fmt: skip
#: Aggregate functions that accept IGNORE NULLS.
_ANY = frozenset({"any_value", "first", "first_value", "last", "last_value"})


def _is_call(node: Node) -> bool:
    if not isinstance(node, exp.Anonymous):
        return False
    name = str(node.this).lower()
    return name in AGGREGATES or name in REFUSED


def holds_aggregate(node: Node) -> bool:
    """Whether ``node`` has an aggregate (supported or not) without OVER, outside subqueries."""
    parts = list(node.walk(prune=lambda part: isinstance(part, exp.Query)))
    over = {id(call_over(part)) for part in parts if isinstance(part, exp.Window)}
    return any(_is_call(part) and id(part) not in over for part in parts)


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """A call of an aggregate function, with its clauses.

    Attributes:
        order: sort keys inside the call or in WITHIN GROUP.
        where: condition of FILTER.
    """

    node: Node
    name: str
    arguments: tuple[Node, ...]
    distinct: bool = False
    order: tuple[exp.Ordered, ...] = ()
    where: Node | None = None

    @property
    def parts(self) -> tuple[Node, ...]:
        """All expressions in the aggregate call: arguments, sort keys and FILTER."""
        where = () if self.where is None else (self.where,)
        return (*self.arguments, *self.order, *where)


def call_of(node: Node) -> AggregateCall | None:
    """``node`` as an aggregate call with its clauses; None if it is another expression.

    Raises:
        QueryError: ``unsupported-sql``: the function, or one of its clauses, is not supported.
    """
    core, where, order = node, None, list[exp.Ordered]()
    ignoring = False
    while isinstance(core, exp.Filter | exp.WithinGroup | exp.IgnoreNulls | exp.RespectNulls):
        if isinstance(core, exp.Filter):
            where = core.expression.this
        elif isinstance(core, exp.WithinGroup):
            order = list(core.expression.expressions)
        else:
            ignoring = True
        core = core.this
    if not isinstance(core, exp.Anonymous) or not _is_call(core):
        return None
    name = str(core.this).lower()
    if name in REFUSED:
        raise unsupported(f"{name}()", REFUSED[name])
    arguments, distinct = list(core.expressions), False
    if arguments and isinstance(arguments[-1], exp.Order):
        order += arguments[-1].expressions
        arguments[-1] = arguments[-1].this
    if len(arguments) == 1 and isinstance(arguments[0], exp.Distinct):
        arguments, distinct = list(arguments[0].expressions), True
    if arguments and isinstance(arguments[-1], exp.Order):
        order += arguments[-1].expressions
        arguments[-1] = arguments[-1].this
    if order and name not in _ORDERED:
        remedy = f"write {'max' if name.startswith('last') else 'min'}_by(x, y)"
        raise unsupported(f"ORDER BY in {name}()", remedy if name in _ANY else "leave it out")
    if ignoring and name not in _ANY:
        raise unsupported(f"IGNORE NULLS or RESPECT NULLS of {name}()", "leave it out")
    return AggregateCall(core, name, tuple(arguments), distinct, tuple(order), where)


def result_type(function: AggregateFunction, argument: DataType) -> DataType:
    """The result type of the SQL aggregate ``function`` over values of type ``argument``.

    >>> str(result_type(AggregateFunction.AVG, DataType(TypeKind.DECIMAL, 12, 2)))
    'decimal(16,6)'
    """
    if function is _F.COUNT:
        return BIGINT
    if function in _OF_ARGUMENT:
        return argument
    if argument.kind in INTERVALS and function is _F.SUM:
        return argument
    if argument.kind in INTERVALS and function is _F.AVG:
        return whole_interval(argument.kind)
    if argument.kind is TypeKind.DECIMAL and function in (_F.SUM, _F.AVG):
        more, digits = (10, 0) if function is _F.SUM else (4, 4)
        return DataType(
            TypeKind.DECIMAL,
            min(argument.precision + more, MAX_PRECISION),
            min(argument.scale + digits, MAX_PRECISION),
        )
    if argument.kind in INTEGRAL and function is _F.SUM:
        return BIGINT
    return DOUBLE


#: Aggregate functions whose result has the type of their argument.
_OF_ARGUMENT = frozenset({
    _F.MIN, _F.MAX, _F.MAX_BY, _F.MIN_BY, _F.PERCENTILE_DISC, _F.LISTAGG, _F.BIT_AND, _F.BIT_OR,
    _F.BIT_XOR, _F.MODE,
})  # fmt: skip


def no_number(name: str, type_: DataType) -> QueryError:
    """The error for a numeric aggregate ``name`` over values that are not numbers."""
    return QueryError(
        "type-mismatch",
        f"{name}() takes a number, its argument is of type {type_}",
        remedy="cast it to a number first",
    )


#: Key in a window function's metadata that marks its PARTITION BY and ORDER BY as read and removed.
READ = "windowed"
#: Names of SQL's ranking functions.
PLACES = frozenset({"dense_rank", "rank", "row_number"})
#: Function name in a call with OVER -> window function.
WINDOWED = {
    **{function.value: function for function in WindowFunction},
    "mean": WindowFunction.AVG,
    **dict.fromkeys(("any_value", "first"), WindowFunction.FIRST_VALUE),
    "last": WindowFunction.LAST_VALUE,
}
#: Functions of :data:`WINDOWED` that are also aggregates.
TOTALS = frozenset({"avg", "count", "max", "mean", "min", "sum"})


def windows_in(node: Node) -> Iterator[Node]:
    """The calls with OVER in ``node``, outside of subqueries, that are not marked :data:`READ`."""
    for part in node.walk(prune=lambda part: isinstance(part, exp.Query)):
        if function_over(part) and READ not in part.meta:
            yield part


def windows_of(items: Iterable[SelectItem]) -> list[Node]:
    """The calls with OVER in a SELECT list, in order."""
    return [window for item in items if item.node is not None for window in windows_in(item.node)]


def call_over(window: Node) -> Node:
    """The SQL function call in ``window``, without IGNORE or RESPECT NULLS and FILTER around it."""
    call: Node = window.this
    while isinstance(call, exp.IgnoreNulls | exp.RespectNulls | exp.Filter):
        call = call.this
    return call


def function_over(node: Node | None) -> str:
    """The name, in lower case, of the function in a call with OVER; empty for another node."""
    call = call_over(node) if isinstance(node, exp.Window) else None
    return str(call.this).lower() if isinstance(call, exp.Anonymous) else ""


def is_total(window: Node) -> bool:
    """Whether an SQL ``window`` is an aggregate over its partition, without ORDER BY or frame."""
    clauses = (window.args.get(name) for name in ("order", "spec", "alias"))
    plain = isinstance(window.this, exp.Anonymous) and not window.this.find(exp.Distinct)
    return function_over(window) in TOTALS and plain and not any(clauses)
