"""Aggregate functions: names and result types, as in Spark (ANSI mode)."""

from __future__ import annotations

from dataclasses import dataclass

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import DOUBLE, MAX_PRECISION
from anabranch_contract.queries.expressions import BOOLEAN
from anabranch_contract.queries.types import FLOATING, INTEGRAL, NUMERIC, DataType, TypeKind
from anabranch_contract.queries.views import AggregateFunction
from anabranch_planner.sql.unresolved import Node, unsupported

BIGINT = DataType(TypeKind.BIGINT)

#: Aggregates by Spark's names; ``post_join`` rewrites ``count_if``, ``bool_and``, ``bool_or``.
AGGREGATES = {
    "count": AggregateFunction.COUNT,
    "sum": AggregateFunction.SUM,
    "avg": AggregateFunction.AVG,
    "mean": AggregateFunction.AVG,
    "min": AggregateFunction.MIN,
    "max": AggregateFunction.MAX,
    "std": AggregateFunction.STDDEV_SAMP,
    "stddev": AggregateFunction.STDDEV_SAMP,
    "stddev_samp": AggregateFunction.STDDEV_SAMP,
    "stddev_pop": AggregateFunction.STDDEV_POP,
    "variance": AggregateFunction.VAR_SAMP,
    "var_samp": AggregateFunction.VAR_SAMP,
    "var_pop": AggregateFunction.VAR_POP,
    "count_if": AggregateFunction.COUNT,
    "bool_and": AggregateFunction.MIN,
    "every": AggregateFunction.MIN,
    "bool_or": AggregateFunction.MAX,
    "some": AggregateFunction.MAX,
}
#: Unsupported aggregates of Spark, with the reason.
REFUSED = {
    **dict.fromkeys(
        ("first", "first_value", "last", "last_value", "any_value"),
        "it depends on the order in which rows arrive: use min or max",
    ),
    **dict.fromkeys(
        ("collect_list", "collect_set", "array_agg", "listagg", "string_agg"),
        "select the rows, and collect them where the results are read",
    ),
    **dict.fromkeys(
        ("median", "percentile", "percentile_cont", "percentile_approx", "approx_percentile"),
        "compute it where the results are read",
    ),
    "approx_count_distinct": "use count(DISTINCT x)",
    "max_by": "order by it, with a LIMIT",
    "min_by": "order by it, with a LIMIT",
    "grouping": "register one query for each grouping",
}


def is_aggregate(node: Node) -> bool:
    """Whether a node calls an aggregate function, supported or not."""
    if not isinstance(node, exp.Anonymous):
        return False
    name = str(node.this).lower()
    return name in AGGREGATES or name in REFUSED


def holds_aggregate(node: Node) -> bool:
    """Whether the tree under ``node`` contains an aggregate."""
    return any(is_aggregate(part) for part in node.walk())


_OF_NUMBERS = frozenset(AggregateFunction) - {
    AggregateFunction.COUNT,
    AggregateFunction.MIN,
    AggregateFunction.MAX,
}
_OF_BOOLEANS = frozenset({"count_if", "bool_and", "every", "bool_or", "some"})


@dataclass(frozen=True, slots=True)
class TypedAggregate:
    """An aggregate function and the type of its result."""

    function: AggregateFunction
    type: DataType


def kind_of(name: str, argument: DataType, *, distinct: bool) -> TypedAggregate:
    """The aggregate ``name`` over an argument of type ``argument``, with its result type.

    Raises:
        QueryError: ``type-mismatch``, ``unsupported-sql``.

    >>> str(kind_of("avg", DataType(TypeKind.DECIMAL, 12, 2), distinct=False).type)
    'decimal(16,6)'
    """
    function = AGGREGATES[name]
    if name in _OF_BOOLEANS and argument != BOOLEAN:
        raise QueryError(
            "type-mismatch",
            f"{name}() is of conditions, its argument is of type {argument}",
            remedy="write a comparison",
        )
    if function in _OF_NUMBERS and argument.kind not in NUMERIC:
        raise QueryError(
            "type-mismatch",
            f"{name}() is of numbers, its argument is of type {argument}",
            remedy="cast it to a number first",
        )
    if distinct and (function is not AggregateFunction.COUNT or argument.kind in FLOATING):
        if function in (AggregateFunction.MIN, AggregateFunction.MAX):
            return TypedAggregate(function, argument)
        raise unsupported(
            f"{name}(DISTINCT ...) of {argument}",
            "only count(DISTINCT x) of anything but floats is",
        )
    return TypedAggregate(function, _type_of(function, argument))


def _type_of(function: AggregateFunction, argument: DataType) -> DataType:
    if function is AggregateFunction.COUNT:
        return BIGINT
    if function in (AggregateFunction.MIN, AggregateFunction.MAX):
        return argument
    if argument.kind is TypeKind.DECIMAL and function in (
        AggregateFunction.SUM,
        AggregateFunction.AVG,
    ):
        more, digits = (10, 0) if function is AggregateFunction.SUM else (4, 4)
        return DataType(
            TypeKind.DECIMAL,
            min(argument.precision + more, MAX_PRECISION),
            min(argument.scale + digits, MAX_PRECISION),
        )
    if argument.kind in INTEGRAL and function is AggregateFunction.SUM:
        return BIGINT
    return DOUBLE
