"""SQL functions of intervals: fields of an interval, and intervals made from numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import BIGINT, DOUBLE, INT
from anabranch_contract.queries.expressions import INTERVAL, Call, Expr, Literal
from anabranch_contract.queries.text_values import UNIT_SIZES
from anabranch_contract.queries.types import (
    INTERVAL_UNITS,
    NUMERIC,
    DataType,
    TypeKind,
    interval_of,
    whole_interval,
)
from anabranch_planner.binding.functions.signatures import Argument, Rewriting, converted
from anabranch_planner.binding.literals import coerce, singular
from anabranch_planner.sql.unresolved import unsupported

_MONTH, _DAY = interval_of("month", "month"), interval_of("day", "day")
_TINYINT, _MICROS = DataType(TypeKind.TINYINT), DataType(TypeKind.DECIMAL, 8, 6)
_SECONDS, _PLACES = DataType(TypeKind.DECIMAL, 18, 6), DataType(TypeKind.DECIMAL, 18, 0)
_QUOTIENT = DataType(TypeKind.DECIMAL, 27, 9)


def count_of(interval: Expr) -> Expr:
    """Typed number of microseconds (or months) in an interval, as a bigint."""
    if interval.type.kind is TypeKind.MONTHS:
        return coerce(months_in(interval), BIGINT)
    return Call("unix_micros", (interval,), BIGINT)


def seconds_in(micros: Expr) -> Expr:
    """Typed conversion of microseconds to seconds with a fraction, as a double."""
    return Call("div", (coerce(micros, DOUBLE), Literal(1e6, DOUBLE)), DOUBLE)


def months_in(interval: Expr) -> Expr:
    """Typed number of months in an interval of years and months, as an int."""
    return coerce(coerce(interval, _MONTH), INT)


def part_of_interval(name: str, interval: Expr) -> Expr:
    """Typed ``EXTRACT(name FROM interval)``: the field (days, hours etc.) of the interval's text.

    Raises:
        QueryError: ``unsupported-sql``: the interval has no such unit.
    """
    kind, part = interval.type, singular(name)
    names = INTERVAL_UNITS[kind.kind]
    if part == "epoch" and kind.kind is TypeKind.INTERVAL:
        return seconds_in(count_of(interval))
    if part not in names[kind.precision : kind.scale + 1]:
        widest = whole_interval(kind.kind)
        remedy = f"use one of {', '.join(names[kind.precision : kind.scale + 1]).upper()}"
        if kind != widest:
            remedy += f", or CAST(x AS {widest.upper()})"
        raise QueryError(
            "unsupported-sql",
            f"EXTRACT of {name.upper()} from {interval}, which is of type {kind}, is not supported",
            remedy=remedy,
        )
    at, sizes = names.index(part), UNIT_SIZES[kind.kind]
    rest = count_of(interval)
    if at:
        rest = Call("mod", (rest, Literal(sizes[at - 1], BIGINT)), BIGINT)
    if part == "second":
        parts = (coerce(rest, _PLACES), Literal(Decimal(1_000_000), _PLACES))
        return coerce(Call("div", parts, _QUOTIENT), _MICROS)
    whole = Call("div_int", (rest, Literal(sizes[at], BIGINT)), BIGINT)
    return coerce(whole, _TINYINT if at else INT)


def _make_dt_interval(args: Sequence[Expr]) -> Expr:
    """Typed call of ``make_dt_interval([days[, hours[, minutes[, seconds]]]])``."""
    numbers = [converted("make_dt_interval", arg, Argument.INT) for arg in args[:3]]
    found: Expr = Literal(0, BIGINT)
    if len(args) > 3:
        seconds = _seconds(args[3])
        million = Literal(Decimal(1_000_000), DataType(TypeKind.DECIMAL, 7, 0))
        product = Call("mul", (seconds, million), DataType(TypeKind.DECIMAL, 26, 6))
        found = coerce(product, BIGINT)
    for number, size in zip(numbers, UNIT_SIZES[TypeKind.INTERVAL], strict=False):
        micros = Call("mul", (coerce(number, BIGINT), Literal(size, BIGINT)), BIGINT)
        found = Call("add", (found, micros), BIGINT)
    return Call("timestamp_micros", (found,), INTERVAL)


def _seconds(arg: Expr) -> Expr:
    if arg.type.kind in NUMERIC:
        return coerce(arg, _SECONDS)
    return coerce(converted("make_dt_interval", arg, Argument.DOUBLE), _SECONDS)


def _make_ym_interval(args: Sequence[Expr]) -> Expr:
    """Typed call of ``make_ym_interval([years[, months]])``."""
    years, months = (
        coerce(converted("make_ym_interval", arg, Argument.INT), BIGINT)
        for arg in (*args, *[Literal(0, INT)] * (2 - len(args)))
    )
    twelve = Call("mul", (years, Literal(12, BIGINT)), BIGINT)
    total = coerce(Call("add", (twelve, months), BIGINT), INT)
    return coerce(coerce(total, _MONTH), whole_interval(TypeKind.MONTHS))


def _make_interval(args: Sequence[Expr]) -> Expr:
    """Typed ``make_interval(years, months, weeks, days, hours, minutes, seconds)``: years and
    months must be literal zeros, or all other arguments."""
    zeros = [isinstance(arg, Literal) and arg.value == 0 for arg in args]
    if all(zeros[2:]) and not all(zeros):
        return _make_ym_interval(args[:2])
    if not all(zeros[:2]):
        years, months, *others = map(str, args)
        first, second, *rest = [*others, "0", "0"][: max(len(others), 2)]
        parts = ", ".join([f"7 * {first} + {second}", *rest])
        raise unsupported(
            "make_interval() of months beside days, which have no common type,",
            f"write make_ym_interval({years}, {months}) + make_dt_interval({parts})",
        )
    given = [converted("make_interval", one, Argument.INT) for one in args[2:4]]
    weeks, days = (coerce(one, BIGINT) for one in (*given, Literal(0, INT), Literal(0, INT))[:2])
    seven = Call("mul", (weeks, Literal(7, BIGINT)), BIGINT)
    whole = coerce(Call("add", (seven, days), BIGINT), INT)
    found = _make_dt_interval([whole, *args[4:]])
    # Without hours, minutes and seconds it is an interval of days, so that a date plus the interval
    # is a date, as in Spark.
    return coerce(found, _DAY) if all(zeros[4:]) else found


_MADE: dict[str, tuple[int, Callable[[Sequence[Expr]], Expr]]] = {
    "make_dt_interval": (4, _make_dt_interval),
    "make_ym_interval": (2, _make_ym_interval),
    "make_interval": (7, _make_interval),
}
#: SQL function that makes an interval -> rewriting of its calls.
MADE = {name: Rewriting(0, most, made) for name, (most, made) in _MADE.items()}
