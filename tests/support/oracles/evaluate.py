"""A slow evaluator of expressions (``expr.Expr``) over Python values, with SQL's three-valued
logic.

Values have the form of those in ``expr.Literal``: dates are days, timestamps and intervals
microseconds (ints), decimals ``Decimal``. Comparisons follow Spark: NaN equals NaN and is greater
than every other number, and -0.0 equals 0.0.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, TypeAlias

from anabranch_contract.queries.expressions import Column, Expr, Literal
from anabranch_contract.queries.types import (
    EXACT,
    FLOATING,
    INTEGRAL,
    TIMESTAMPS,
    DataType,
    TypeKind,
)

Value: TypeAlias = bool | int | float | str | bytes | Decimal | None

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAY = 86_400_000_000


def key_of(value: Value, kind: str) -> Value:
    """Return ``value`` in a form in which equal keys of type ``kind`` are equal by Python's ``==``.

    >>> key_of(Decimal("2.50"), "decimal(38,2)") == key_of(Decimal("2.5"), "decimal(38,2)")
    True
    >>> key_of(float("nan"), "double") == key_of(float("nan"), "double")
    True
    """
    if value is None:
        return None
    if kind == "double" and isinstance(value, int | float | Decimal):
        number = float(value)
        return "NaN" if math.isnan(number) else number + 0.0
    return value


def evaluate(expr: Expr, read: Callable[[Column], Value]) -> Value:
    """Return the value of ``expr``; ``read`` returns the value of a column.

    >>> evaluate(Literal(3, DataType(TypeKind.INT)), lambda column: None)
    3
    """
    if isinstance(expr, Literal):
        return expr.value
    if isinstance(expr, Column):
        return read(expr)
    if expr.op == "case":
        return _case(expr.args, read)
    if expr.op == "coalesce":
        return next((v for v in (evaluate(a, read) for a in expr.args) if v is not None), None)
    args = [evaluate(a, read) for a in expr.args]
    if expr.op in _LENIENT:
        return _LENIENT[expr.op](args)
    if any(a is None for a in args):
        return None
    if expr.op == "cast":
        return _cast(args[0], expr.args[0].type, expr.type)
    if expr.op in _TIME_PARTS and expr.args[0].type.kind is TypeKind.DATE:
        args = [_int(args[0]) * DAY]
    return _STRICT[expr.op](args)


def holds(expr: Expr, read: Callable[[Column], Value]) -> bool:
    """Whether a condition is true (neither false nor unknown)."""
    return evaluate(expr, read) is True


def compare(left: Value, right: Value) -> int:
    """Return -1, 0 or 1 for two values of one comparable type, neither of them NULL."""
    one, other = _ordered(left), _ordered(right)
    return (one > other) - (one < other)


def _ordered(value: Value) -> tuple[bool, bool | int | float | str | bytes | Decimal]:
    assert value is not None
    if isinstance(value, float) and math.isnan(value):
        return True, 0
    return False, value


def _case(args: Sequence[Expr], read: Callable[[Column], Value]) -> Value:
    pairs, default = args[: len(args) // 2 * 2], args[len(args) // 2 * 2 :]
    for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
        if holds(condition, read):
            return evaluate(value, read)
    return evaluate(default[0], read) if default else None


def _and(args: list[Value]) -> Value:
    if any(a is False for a in args):
        return False
    return None if any(a is None for a in args) else True


def _or(args: list[Value]) -> Value:
    if any(a is True for a in args):
        return True
    return None if any(a is None for a in args) else False


def _in(args: list[Value]) -> Value:
    if args[0] is None:
        return None
    known = [a for a in args[1:] if a is not None]
    if any(compare(args[0], a) == 0 for a in known):
        return True
    return None if len(known) < len(args) - 1 else False


def _null_safe(args: list[Value]) -> Value:
    if args[0] is None or args[1] is None:
        return args[0] is args[1]
    return compare(args[0], args[1]) == 0


_LENIENT: dict[str, Callable[[list[Value]], Value]] = {
    "and": _and,
    "or": _or,
    "in": _in,
    "constant": lambda a: 0,
    "is_null": lambda a: a[0] is None,
    "is_not_null": lambda a: a[0] is not None,
    "eq_null_safe": _null_safe,
}


def _like(args: list[Value]) -> bool:
    out, pattern, k = "", str(args[1]), 0
    while k < len(pattern):
        char = pattern[k]
        if char == "\\" and k + 1 < len(pattern):
            k += 1
            out += re.escape(pattern[k])
        else:
            out += {"%": ".*", "_": "."}.get(char, re.escape(char))
        k += 1
    return re.fullmatch(out, str(args[0]), re.DOTALL) is not None


def _int(value: Value) -> int:
    assert isinstance(value, int)
    return value


def _moment(value: Value) -> datetime:
    return _EPOCH + timedelta(microseconds=_int(value))


def _substring(args: list[Value]) -> str:
    text, position, length = str(args[0]), _int(args[1]), _int(args[2])
    start = position - 1 if position > 0 else len(text) + position if position < 0 else 0
    return text[max(start, 0) : max(start + length, 0)]


def _number(value: Value) -> Any:
    assert isinstance(value, int | float | Decimal)
    return value


def _divide(args: list[Value]) -> Value:
    left, right = _number(args[0]), _number(args[1])
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left / right
    return float(left) / float(right)


def _modulo(args: list[Value]) -> Value:
    """Return the remainder with the sign of the dividend, as in SQL."""
    left, right = _number(args[0]), _number(args[1])
    if isinstance(left, int) and isinstance(right, int):
        return abs(left) % abs(right) * (1 if left >= 0 else -1)
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        return left % right
    return math.fmod(left, right)


_STRICT: dict[str, Callable[[list[Value]], Value]] = {
    "eq": lambda a: compare(a[0], a[1]) == 0,
    "ne": lambda a: compare(a[0], a[1]) != 0,
    "lt": lambda a: compare(a[0], a[1]) < 0,
    "le": lambda a: compare(a[0], a[1]) <= 0,
    "gt": lambda a: compare(a[0], a[1]) > 0,
    "ge": lambda a: compare(a[0], a[1]) >= 0,
    "not": lambda a: not a[0],
    "like": _like,
    "add": lambda a: _number(a[0]) + _number(a[1]),
    "sub": lambda a: _number(a[0]) - _number(a[1]),
    "mul": lambda a: _number(a[0]) * _number(a[1]),
    "div": _divide,
    "mod": _modulo,
    "neg": lambda a: -_number(a[0]),
    "abs": lambda a: abs(_number(a[0])),
    "lower": lambda a: str(a[0]).lower(),
    "upper": lambda a: str(a[0]).upper(),
    "length": lambda a: len(str(a[0])),
    "substring": _substring,
    "concat": lambda a: "".join(map(str, a)),
    "trim": lambda a: str(a[0]).strip(" "),
    "year": lambda a: _moment(a[0]).year,
    "month": lambda a: _moment(a[0]).month,
    "day": lambda a: _moment(a[0]).day,
    "hour": lambda a: _moment(a[0]).hour,
    "minute": lambda a: _moment(a[0]).minute,
    "second": lambda a: _moment(a[0]).second,
    "timestamp_seconds": lambda a: _int(a[0]) * 1_000_000,
    "timestamp_millis": lambda a: _int(a[0]) * 1_000,
    "timestamp_micros": lambda a: _int(a[0]),
    "unix_seconds": lambda a: _int(a[0]) // 1_000_000,
    "unix_millis": lambda a: _int(a[0]) // 1_000,
    "unix_micros": lambda a: _int(a[0]),
}
_TIME_PARTS = frozenset({"year", "month", "day", "hour", "minute", "second"})


def _cast(value: Value, source: DataType, target: DataType) -> Value:
    """Cast a value; only casts of the tests' queries are supported."""
    kind = target.kind
    if source.kind is kind and kind is not TypeKind.DECIMAL:
        return value
    if kind in FLOATING and isinstance(value, int | float | Decimal | str):
        return float(value)
    if kind in INTEGRAL and isinstance(value, int | float | Decimal | str):
        return int(value)
    if kind is TypeKind.DECIMAL and isinstance(value, int | float | Decimal | str):
        return Decimal(str(value)).quantize(Decimal(1).scaleb(-target.scale), ROUND_HALF_UP)
    if kind in TIMESTAMPS and source.kind in TIMESTAMPS:
        return value
    if kind in TIMESTAMPS and source.kind is TypeKind.DATE:
        return _int(value) * DAY
    if kind is TypeKind.DATE and source.kind in TIMESTAMPS:
        return _int(value) // DAY
    if kind is TypeKind.STRING and source.kind in EXACT:
        return str(value)
    if kind is TypeKind.STRING and source.kind is TypeKind.DATE:
        return (date(1970, 1, 1) + timedelta(days=_int(value))).isoformat()
    raise NotImplementedError(f"cast from {source} to {target}")
