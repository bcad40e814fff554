"""Functions of intervals: parts of an interval, and intervals made from numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import BIGINT, INT
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

_MONTH = interval_of("month", "month")
_TINYINT, _MICROS = DataType(TypeKind.TINYINT), DataType(TypeKind.DECIMAL, 8, 6)
_SECONDS, _PLACES = DataType(TypeKind.DECIMAL, 18, 6), DataType(TypeKind.DECIMAL, 18, 0)
_QUOTIENT = DataType(TypeKind.DECIMAL, 27, 9)


def count_of(interval: Expr) -> Expr:
    """The microseconds or months of an interval, as a bigint."""
    if interval.type.kind is TypeKind.MONTHS:
        return coerce(months_in(interval), BIGINT)
    return Call("unix_micros", (interval,), BIGINT)


def months_in(interval: Expr) -> Expr:
    """The number of months of an interval of years and months, as an int."""
    return coerce(coerce(interval, _MONTH), INT)


def part_of_interval(name: str, interval: Expr) -> Expr:
    """``EXTRACT(name FROM interval)``: the days, hours etc. as the interval's text shows them.

    Raises:
        QueryError: ``unsupported-sql``: the interval has no such unit.
    """
    kind, part = interval.type, singular(name)
    names = INTERVAL_UNITS[kind.kind]
    if part not in names[kind.precision : kind.scale + 1]:
        widest = whole_interval(kind.kind)
        remedy = f"use one of {', '.join(names[kind.precision : kind.scale + 1]).upper()}"
        if kind != widest:
            remedy += f", or CAST(x AS {widest.upper()})"
        if part == "epoch" and kind.kind is TypeKind.INTERVAL:
            remedy = f"write {interval} DIV INTERVAL '1' SECOND for whole seconds"
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
    """``make_dt_interval([days[, hours[, minutes[, seconds]]]])``."""
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
    """``make_ym_interval([years[, months]])``."""
    years, months = (
        coerce(converted("make_ym_interval", arg, Argument.INT), BIGINT)
        for arg in (*args, *[Literal(0, INT)] * (2 - len(args)))
    )
    twelve = Call("mul", (years, Literal(12, BIGINT)), BIGINT)
    total = coerce(Call("add", (twelve, months), BIGINT), INT)
    return coerce(coerce(total, _MONTH), whole_interval(TypeKind.MONTHS))


_MADE: dict[str, tuple[int, Callable[[Sequence[Expr]], Expr]]] = {
    "make_dt_interval": (4, _make_dt_interval),
    "make_ym_interval": (2, _make_ym_interval),
}
#: Function -> rewriting.
MADE = {name: Rewriting(0, most, made) for name, (most, made) in _MADE.items()}
