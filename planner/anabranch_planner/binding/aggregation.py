"""Aggregates of a statement as functions over columns of the joined rows.

The join computes the arguments, casts included. Spark's aggregate functions that views lack are
rewritten with others that return a valid result: ``any_value`` as ``min``,
``approx_count_distinct`` as the exact count, and ``count(DISTINCT a, b)`` as a count over one text
of both columns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import DOUBLE, INT, STRING
from anabranch_contract.queries.expressions import BOOLEAN, Call, Column, Expr, Literal
from anabranch_contract.queries.types import (
    FLOATING,
    INTEGRAL,
    INTERVALS,
    NUMERIC,
    DataType,
    TypeKind,
    array_of,
)
from anabranch_contract.queries.views import PAIRS, AggregateFunction, ViewAggregate
from anabranch_planner.binding.functions.collections import require_comparable
from anabranch_planner.binding.functions.signatures import Argument, converted
from anabranch_planner.binding.literals import coerce
from anabranch_planner.binding.typecheck import boolean, typed
from anabranch_planner.sql.aggregates import (
    AGGREGATES,
    BIGINT,
    AggregateCall,
    holds_aggregate,
    no_number,
    result_type,
)
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.unresolved import Node, at, bare, describe, unsupported

_F = AggregateFunction
_ONE = Literal(1, INT)
_OF_BOOLEANS = frozenset({"count_if", "countif", "bool_and", "every", "bool_or", "some"})
_OF_NUMBERS = frozenset({
    _F.SUM, _F.AVG, _F.STDDEV_SAMP, _F.STDDEV_POP, _F.VAR_SAMP, _F.VAR_POP, _F.SKEWNESS,
    _F.KURTOSIS,
})  # fmt: skip
_OF_BITS = frozenset({_F.BIT_AND, _F.BIT_OR, _F.BIT_XOR})
_DISTINCT = frozenset({_F.COUNT, _F.SUM, _F.AVG, _F.LISTAGG})
_MOMENTS = frozenset({_F.SKEWNESS, _F.KURTOSIS})
_LEAST_OR_GREATEST = frozenset({_F.MIN, _F.MAX})
#: Types whose values, as texts, never contain the separator of :func:`_together`.
_PLAIN = NUMERIC - FLOATING | {TypeKind.BOOLEAN, TypeKind.DATE}
_BAR = Literal("|", STRING)


@dataclass(frozen=True, slots=True)
class _Found:
    """An aggregate whose arguments are still expressions over streams, not over joined rows."""

    function: AggregateFunction
    value: Expr | None
    type: DataType
    distinct: bool = False
    by: Expr | None = None
    option: str = ""
    descending: bool = False
    then: tuple[tuple[Expr, bool], ...] = ()

    def only(self, condition: Expr) -> _Found:
        """The aggregate with NULL as its argument in rows that violate ``condition`` (FILTER)."""
        if self.function in (_F.MAX_BY, _F.MIN_BY):
            assert self.by is not None
            return replace(self, by=_if(condition, self.by))
        value = _if(condition, _ONE if self.value is None else self.value)
        # If the argument is also a sort key (listagg(x) ordered by x), replace that, too.
        then = tuple((value if key == self.value else key, down) for key, down in self.then)
        own = self.by is not None and self.by == self.value
        return replace(self, value=value, by=value if own else self.by, then=then)


@dataclass(slots=True)
class Aggregation:
    """The aggregates of one SQL statement, with the columns of the joined rows that they read.

    Attributes:
        keys: expression over the streams -> the joined rows' column of the equal GROUP BY key,
            which arguments may read.
        arguments: expression over the streams -> the joined rows' column added for an argument.
        aggregates: aggregate without an output name -> the same aggregate with its name.
    """

    keys: dict[Expr, str] = field(default_factory=dict)
    arguments: dict[Expr, str] = field(default_factory=dict)
    aggregates: dict[ViewAggregate, ViewAggregate] = field(default_factory=dict)

    def column(self, call: AggregateCall, scope: Scope) -> Column:
        """The post-join column of the aggregate ``call``, whose arguments read from ``scope``.

        Raises:
            QueryError: the function does not take this number or these types of arguments.
        """
        with at(call.node):
            if any(holds_aggregate(node) for node in call.parts):
                raise QueryError(
                    "misplaced-aggregate",
                    f"{call.name}() contains another aggregate",
                    remedy="aggregate once; register another query over the results",
                )
            others = _regression if call.name.startswith("regr_") else _plain
            found = _RULES.get(AGGREGATES[call.name], others)(call, scope)
            if call.where is not None:
                found = found.only(boolean(call.where, scope))
        return self._added(found)

    def _added(self, found: _Found) -> Column:
        """Add a typed aggregate to the statement; return its post-join column."""
        read = self._argument(found.value), self._argument(found.by)
        then = tuple((self._column(key), down) for key, down in found.then)

        def named(name: str) -> ViewAggregate:
            return ViewAggregate(
                name, found.function, read[0], found.distinct, found.type, read[1], found.option,
                found.descending, then,
            )  # fmt: skip

        unnamed = named("")
        if unnamed not in self.aggregates:
            self.aggregates[unnamed] = named(f"g{len(self.aggregates) + 1}")
        return Column("", self.aggregates[unnamed].name, found.type)

    def _argument(self, value: Expr | None) -> str | None:
        return None if value is None else self._column(value)

    def _column(self, value: Expr) -> str:
        """Name of the joined rows' column with the value of an aggregate's argument."""
        return self.keys.get(value) or self.arguments.setdefault(
            value, f"a{len(self.arguments) + 1}"
        )


# --- functions -----------------------------------------------------------------------------------


def _plain(call: AggregateCall, scope: Scope) -> _Found:
    """Type an aggregate of one argument: count, sum, avg, min, max, deviations, rewritten ones."""
    function = AGGREGATES[call.name]
    arguments, distinct = call.arguments, call.distinct
    if call.name in ("first", "first_value", "last", "last_value") and len(arguments) == 2:
        if not isinstance(arguments[1], exp.Boolean):
            raise unsupported(f"{call.name}() of two columns", "write min_by(x, y) or max_by(x, y)")
        arguments = arguments[:1]
    if call.name == "approx_count_distinct":
        # An exact count does not need the accuracy argument.
        arguments, distinct = arguments[:1] if len(arguments) == 2 else arguments, True
    if call.name == "count" and distinct and len(arguments) > 1:
        value = _together([typed(node, scope) for node in arguments])
        return _Found(_F.COUNT, value, BIGINT, distinct=True)
    _require(call, arguments, 1, "one argument", "write one expression")
    if isinstance(arguments[0], exp.Star):
        if call.name != "count" or distinct:
            raise unsupported(f"{call.name}(*)", "name a column")
        return _Found(_F.COUNT, None, BIGINT)
    value = typed(arguments[0], scope)
    if function is not _F.COUNT or distinct:
        _require_no_struct(call.name, value)
        require_comparable(f"{call.name}() of", value)
    if call.name in _OF_BOOLEANS and value.type != BOOLEAN:
        raise QueryError(
            "type-mismatch",
            f"{call.name}() takes a condition, its argument is of type {value.type}",
            remedy="write a comparison, such as x > 0",
        )
    summed = NUMERIC | INTERVALS if function in (_F.SUM, _F.AVG) else NUMERIC
    if function in _OF_NUMBERS and value.type.kind not in summed:
        raise no_number(call.name, value.type)
    if function in _OF_BITS:
        _refuse_distinct(call)
        if value.type.kind not in INTEGRAL:
            raise QueryError(
                "type-mismatch",
                f"{call.name}() takes an integer, its argument is of type {value.type}",
                remedy=f"write {call.name}(CAST({describe(arguments[0])} AS BIGINT))",
            )
    distinct = distinct and function not in _LEAST_OR_GREATEST
    if distinct:
        _require_distinct(call.name, function, value)
    found = _Found(function, value, result_type(function, value.type), distinct)
    if function in _MOMENTS:
        return replace(found, value=coerce(value, DOUBLE))
    if call.name in ("count_if", "countif"):
        return replace(found, value=_if(value, _ONE))
    return found


def _by(call: AggregateCall, scope: Scope) -> _Found:
    """Type the aggregates ``max_by(x, y)`` and ``min_by(x, y)``."""
    _require(call, call.arguments, 2, "two arguments", f"write {call.name}(x, y)")
    _refuse_distinct(call)
    value, by = (_storable(node, scope) for node in call.arguments)
    return _Found(AGGREGATES[call.name], value, value.type, by=by)


def _pair(call: AggregateCall, scope: Scope) -> _Found:
    """Type a correlation, covariance or regression of two numbers, as a double."""
    _require(call, call.arguments, 2, "two arguments", f"write {call.name}(x, y)")
    _refuse_distinct(call)
    value, by = (_double(call.name, typed(node, scope)) for node in call.arguments)
    return _Found(AGGREGATES[call.name], value, DOUBLE, by=by)


def _mode(call: AggregateCall, scope: Scope) -> _Found:
    """Type the most frequent value: ``mode(x)``, or ``mode() WITHIN GROUP (ORDER BY x)``."""
    _refuse_distinct(call)
    if not call.arguments and len(call.order) == 1:
        value = _storable(call.order[0].this, scope)
        descending = bool(call.order[0].args.get("desc"))
        return _Found(_F.MODE, value, value.type, descending=descending)
    certain = len(call.arguments) == 2 and isinstance(call.arguments[1], exp.Boolean)
    if call.order or not (certain or len(call.arguments) == 1):
        raise QueryError(
            "bad-arguments",
            "mode() takes one argument, or WITHIN GROUP with one sort key",
            remedy="write mode(x)",
        )
    value = _storable(call.arguments[0], scope)
    return _Found(_F.MODE, value, value.type)


def _regression(call: AggregateCall, scope: Scope) -> _Found:
    """Type ``regr_count``, ``regr_avgx`` or ``regr_avgy`` of (y, x), over rows without NULL."""
    _require(call, call.arguments, 2, "two arguments", f"write {call.name}(y, x)")
    _refuse_distinct(call)
    y, x = (_double(call.name, typed(node, scope)) for node in call.arguments)
    there = Call("is_not_null", (x if call.name == "regr_avgy" else y,), BOOLEAN)
    if call.name == "regr_count":
        value = _if(there, _if(Call("is_not_null", (x,), BOOLEAN), _ONE))
        return _Found(_F.COUNT, value, BIGINT)
    return _Found(_F.AVG, _if(there, y if call.name == "regr_avgy" else x), DOUBLE)


def _percentile(call: AggregateCall, scope: Scope) -> _Found:
    """Type a percentile: the median, ``percentile(x, p)``, ``percentile_cont(p) WITHIN GROUP``."""
    name, arguments = call.name, call.arguments
    _refuse_distinct(call)
    descending = False
    if name == "median":
        _require(call, arguments, 1, "one argument", "write one expression")
        node, fraction = arguments[0], "0.5"
    elif name in ("percentile_cont", "percentile_disc"):
        if len(arguments) != 1 or len(call.order) != 1:
            raise QueryError(
                "bad-arguments",
                f"{name}() takes a fraction, and WITHIN GROUP with one sort key",
                remedy=f"write {name}(0.5) WITHIN GROUP (ORDER BY x)",
            )
        node, fraction = call.order[0].this, _fraction(name, arguments[0], scope)
        descending = bool(call.order[0].args.get("desc"))
    else:
        if name in ("percentile_approx", "approx_percentile") and len(arguments) == 3:
            # An exact percentile does not need the accuracy argument.
            arguments = arguments[:2]
        _require(call, arguments, 2, "a value and a fraction", f"write {name}(x, 0.5)")
        node, fraction = arguments[0], _fraction(name, arguments[1], scope)
    function, value = AGGREGATES[name], _storable(node, scope)
    # Spark's percentile_disc is a double, its percentile_approx has the type of its argument.
    if function is _F.PERCENTILE_CONT or (name == "percentile_disc" and value.type.kind in NUMERIC):
        value = _double(name, value)
    return _Found(function, value, value.type, option=fraction, descending=descending)


def _listagg(call: AggregateCall, scope: Scope) -> _Found:
    """Type ``listagg(x[, separator])`` with ORDER BY in its parentheses or in WITHIN GROUP."""
    if not 1 <= len(call.arguments) <= 2:
        raise QueryError(
            "bad-arguments",
            f"{call.name}() takes a text and a separator, not {len(call.arguments)} arguments",
            remedy=f"write {call.name}(x, ',')",
        )
    value = converted(call.name, typed(call.arguments[0], scope), Argument.TEXT)
    separator = ""
    if len(call.arguments) == 2:
        constant = typed(call.arguments[1], scope)
        if not isinstance(constant, Literal) or not isinstance(constant.value, str | None):
            raise unsupported(
                f"the separator {describe(call.arguments[1])}, which is not a literal,",
                "write the text into the query",
            )
        separator = constant.value or ""
    found = _Found(_F.LISTAGG, value, STRING, call.distinct, option=separator)
    return _ordered(call, found, scope)


def _collected(call: AggregateCall, scope: Scope) -> _Found:
    """Type ``collect_list``, ``collect_set`` or ``array_agg``, with ORDER BY in parentheses."""
    _require(call, call.arguments, 1, "one argument", f"write {call.name}(x)")
    value = typed(call.arguments[0], scope)
    if value.type.kind is TypeKind.NULL:
        _storable(call.arguments[0], scope)
    distinct = call.distinct or call.name == "collect_set"
    found = _Found(_F.COLLECT_LIST, value, array_of(value.type), distinct)
    return _ordered(call, found, scope)


def _ordered(call: AggregateCall, found: _Found, scope: Scope) -> _Found:
    """Add the sort keys of the SQL call to the aggregate ``found``, as the order of its values."""
    value, keys = found.value, list[tuple[Expr, bool]]()
    for entry in call.order:
        key, descending = _storable(entry.this, scope), bool(entry.args.get("desc"))
        nulls_first = entry.args.get("nulls_first")
        if key == value:
            # If the argument is a sort key, ignore the keys after it: equal values need no further
            # key, NULLs are left out, and ascending order is the default.
            keys += [(key, True)] if descending else []
            break
        if nulls_first is not None and bool(nulls_first) is descending:
            keys.append((Call("is_null", (key,), BOOLEAN), descending))
        keys.append((key, descending))
    if found.distinct and any(key != value and not _is_text_of(value, key) for key, _ in keys):
        with at(call.order[0]):
            raise unsupported(
                f"{call.name}(DISTINCT x) in the order of another expression", "order by x itself"
            )
    if not keys:
        return found
    (by, descending), *then = keys
    return replace(found, by=by, descending=descending, then=tuple(then))


def _is_text_of(value: Expr | None, key: Expr) -> bool:
    """Whether ``value`` is ``key`` cast to a text, such that equal texts come from equal keys."""
    return value == Call("cast", (key,), STRING) and key.type.kind in _PLAIN


_RULES: dict[AggregateFunction, Callable[[AggregateCall, Scope], _Found]] = {
    _F.MAX_BY: _by,
    _F.MIN_BY: _by,
    _F.PERCENTILE_CONT: _percentile,
    _F.PERCENTILE_DISC: _percentile,
    _F.COLLECT_LIST: _collected,
    _F.LISTAGG: _listagg,
    _F.MODE: _mode,
    **dict.fromkeys(PAIRS, _pair),
}


# --- arguments -----------------------------------------------------------------------------------


def _if(condition: Expr, value: Expr) -> Expr:
    """An aggregate's argument that is NULL unless ``condition`` is true."""
    return Call("case", (condition, value), value.type)


def _require(
    call: AggregateCall, arguments: Sequence[Node], count: int, wanted: str, remedy: str
) -> None:
    """Reject an SQL aggregate with a wrong number of arguments; ``wanted``: text for it."""
    if len(arguments) != count:
        raise QueryError(
            "bad-arguments", f"{call.name}() takes {wanted}, not {len(arguments)}", remedy=remedy
        )


def _refuse_distinct(call: AggregateCall) -> None:
    if call.distinct:
        raise unsupported(f"{call.name}(DISTINCT ...)", "leave DISTINCT out")


def _require_distinct(name: str, function: AggregateFunction, value: Expr) -> None:
    """Reject DISTINCT in an aggregate, or over a type, that does not support it."""
    if function not in _DISTINCT or value.type.kind in FLOATING:
        raise unsupported(
            f"{name}(DISTINCT ...) of {value.type}",
            "use DISTINCT only in count, sum, avg and listagg, and not of floats",
        )


def _require_no_struct(name: str, value: Expr) -> None:
    """Reject max or min of a struct; the remedy writes an aggregate for each of its fields."""
    if value.type.kind is not TypeKind.STRUCT or name not in ("max", "min"):
        return
    fields = [f"{value}.{field}" for field, _ in value.type.fields]
    if isinstance(value, Call) and value.op == "struct":
        fields = [str(arg) for arg in value.args[-len(fields) :]]
    first, *others = fields
    wanted = [f"{name}_by({other}, {first})" for other in others]
    raise QueryError(
        "type-mismatch",
        f"{name}() of {value}, which is of type {value.type}, is not supported",
        remedy=f"write {', '.join([f'{name}({first})', *wanted])}",
    )


def _storable(node: Node, scope: Scope) -> Expr:
    """The typed argument ``node`` of an aggregate; an untyped NULL is rejected."""
    value = typed(node, scope)
    if value.type.kind is TypeKind.NULL:
        with at(node):
            raise QueryError(
                "type-mismatch",
                f"{describe(node)} is of type {value.type}, which this function can't take",
                remedy="cast the value to the type that you want",
            )
    require_comparable("the aggregate of", value)
    return value


def _double(name: str, value: Expr) -> Expr:
    if value.type.kind not in NUMERIC:
        raise no_number(name, value.type)
    return coerce(value, DOUBLE)


def _fraction(name: str, node: Node, scope: Scope) -> str:
    """The fraction of a percentile as a decimal text between 0 and 1."""
    with at(node):
        constant = isinstance(bare(node), exp.Literal | exp.Cast)
        value = typed(node, scope) if constant else None
        if isinstance(value, Literal) and value.type.kind in NUMERIC:
            number = Decimal(str(value.value))
            if 0 <= number <= 1:
                return format(number.normalize(), "f")
        raise QueryError(
            "bad-literal",
            f"{describe(node)} in {name}() is not a fraction",
            remedy="write one number from 0 to 1, and one column per fraction",
        )


def _together(values: Sequence[Expr]) -> Expr:
    """Text that encodes the values of several columns one-to-one, for count(DISTINCT a, b); NULL if
    a value is NULL."""
    parts: list[Expr] = []
    for value in values:
        if value.type.kind not in _PLAIN | {TypeKind.STRING, TypeKind.TIMESTAMP}:
            raise unsupported(
                f"count(DISTINCT ...) of several columns, one of type {value.type},",
                "cast it to a text, a number with digits, a date or a timestamp",
            )
        text = coerce(value, STRING)
        if value.type.kind is TypeKind.STRING:
            parts += [Call("cast", (Call("length", (text,), INT),), STRING), _BAR]
        parts += [text, _BAR]
    return Call("concat", tuple(parts[:-1]), STRING)
