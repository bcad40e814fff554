"""Typed SQL arithmetic of dates, timestamps and intervals, with Spark's types.

An interval of days and shorter units has a fixed length, in UTC. A month or a year has no fixed
length: as in Spark, one month after the 31st is the last day of a shorter month. A date plus days
or months remains a date. Sums of constants are computed during binding.
"""

from __future__ import annotations

import calendar
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import BIGINT, DATE, INT, STRING, TIMESTAMP
from anabranch_contract.queries.expressions import INTERVAL, Call, Expr, Literal
from anabranch_contract.queries.text_values import INTERVAL_BITS
from anabranch_contract.queries.types import (
    INTEGRAL,
    INTERVALS,
    NUMERIC,
    TIMESTAMPS,
    DataType,
    TypeKind,
    interval_of,
    whole_interval,
)
from anabranch_planner.binding.common_types import meet
from anabranch_planner.binding.functions.intervals import months_in
from anabranch_planner.binding.literals import coerce

_MOMENTS = TIMESTAMPS | {TypeKind.DATE}
_NAIVE = DataType(TypeKind.TIMESTAMP_NTZ)
_DAY = interval_of("day", "day")
_DAY_MICROS = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def of_times(op: str, left: Expr, right: Expr) -> Expr | None:
    """Typed ``left op right`` of dates, timestamps and intervals; None for operands of other types.

    Args:
        op: ``add``, ``sub``, ``mul`` or ``div``.

    Raises:
        QueryError: ``bad-literal``: a constant is out of range.
    """
    a, b = left.type.kind, right.type.kind
    if a in INTERVALS and b in NUMERIC and op in ("mul", "div"):
        return _scaled(op, left, right)
    if op == "mul" and a in NUMERIC and b in INTERVALS:
        return _scaled(op, right, left)
    if op not in ("add", "sub"):
        return None
    if a in INTERVALS and a is b:
        left, right = meet(left, right)
        return _folded(Call(op, (left, right), left.type))
    if a in _MOMENTS and b in INTERVALS:
        return _moved(op, left, right)
    if op == "add" and a in INTERVALS and b in _MOMENTS:
        return _moved(op, right, left)
    if op == "sub" and a in _MOMENTS and b in _MOMENTS:
        return _difference(left, right)
    return None


def _difference(left: Expr, right: Expr) -> Expr:
    """Typed difference of two dates or timestamps, an interval."""
    kinds = {left.type.kind, right.type.kind}
    dates = kinds == {TypeKind.DATE}
    if len(kinds) > 1 or dates:
        target = _NAIVE if dates else TIMESTAMP
        left, right = coerce(left, target), coerce(right, target)
    return Call("sub", (left, right), _DAY if dates else INTERVAL)


def _scaled(op: str, interval: Expr, number: Expr) -> Expr:
    """Typed product or quotient of an SQL interval and a number."""
    call = Call(op, (interval, number), whole_interval(interval.type.kind))
    return _folded(call) if op == "mul" and number.type.kind in INTEGRAL else call


_OF_INTEGERS: dict[str, Callable[[int, int], int]] = {
    "add": int.__add__,
    "sub": int.__sub__,
    "mul": int.__mul__,
}


def _folded(call: Call) -> Expr:
    """A typed ``call`` over dates or times, or its value as a literal if it is constant."""
    values = [arg.value for arg in call.args if isinstance(arg, Literal)]
    if len(values) < 2:
        return call
    left, right = values
    if not isinstance(left, int) or not isinstance(right, int):
        return Literal(None, call.type)
    return constant(_OF_INTEGERS[call.op](left, right), call.type)


def constant(value: int, kind: DataType) -> Literal:
    """The typed literal of an interval of ``value`` microseconds or months.

    Raises:
        QueryError: ``bad-literal``: ``value`` is too large for the type.
    """
    limit = 1 << (INTERVAL_BITS[kind.kind] - 1)
    if not -limit <= value < limit:
        raise QueryError(
            "bad-literal",
            f"a constant of type {kind} is out of range",
            remedy="use a shorter interval",
        )
    return Literal(value, kind)


def _moved(op: str, moment: Expr, interval: Expr) -> Expr:
    """The date or timestamp ``moment`` moved by ``interval``."""
    if interval.type.kind is TypeKind.MONTHS:
        return _by_months(op, moment, interval)
    if isinstance(interval, Literal) and interval.type != _DAY:
        # Intervals of equal length become equal expressions, whatever units they were written in.
        interval = Literal(interval.value, INTERVAL)
    if moment.type.kind is not TypeKind.DATE:
        return Call(op, (moment, interval), moment.type)
    if interval.type != _DAY:
        return Call(op, (_at_midnight(moment, TIMESTAMP), interval), TIMESTAMP)
    if isinstance(moment, Literal) and isinstance(interval, Literal):
        if not isinstance(moment.value, int) or not isinstance(interval.value, int):
            return Literal(None, DATE)
        by = interval.value // _DAY_MICROS
        after = moment.value + (by if op == "add" else -by)
        try:
            _EPOCH + timedelta(days=after)
        except OverflowError as cause:
            raise _out_of_range() from cause
        return Literal(after, DATE)
    whole = Literal(interval.value, INTERVAL) if isinstance(interval, Literal) else interval
    # In UTC a day has 24 hours.
    return Call("cast", (Call(op, (_at_midnight(moment, _NAIVE), whole), _NAIVE),), DATE)


def _by_months(op: str, moment: Expr, interval: Expr) -> Expr:
    """Typed sum or difference of a date or timestamp and an interval of months."""
    if isinstance(moment, Literal) and isinstance(interval, Literal):
        return _constant_by_months(op, moment, interval)
    months: Expr
    if isinstance(interval, Literal):
        value = interval.value
        months = Literal(-value if isinstance(value, int) and op == "sub" else value, INT)
    else:
        months = months_in(interval)
        months = Call("neg", (months,), INT) if op == "sub" else months
    if moment.type.kind is TypeKind.DATE:
        return Call("add_months", (moment, months), DATE)
    unit = Literal("month", STRING)
    return Call("timestampadd", (unit, coerce(months, BIGINT), moment), moment.type)


def _constant_by_months(op: str, moment: Literal, interval: Literal) -> Literal:
    if not isinstance(moment.value, int) or not isinstance(interval.value, int):
        return Literal(None, moment.type)
    months = interval.value if op == "add" else -interval.value
    size = 1 if moment.type.kind is TypeKind.DATE else _DAY_MICROS
    days, time = divmod(moment.value, size)
    try:
        before = (_EPOCH + timedelta(days=days)).date()
        first = before.year * 12 + before.month - 1 + months
        year, month = divmod(first, 12)
        last = calendar.monthrange(year, month + 1)[1]
        after = date(year, month + 1, min(before.day, last))
    except (ValueError, OverflowError, calendar.IllegalMonthError) as cause:
        raise _out_of_range() from cause
    return Literal((after - _EPOCH.date()).days * size + time, moment.type)


def _at_midnight(day: Expr, target: DataType) -> Expr:
    if isinstance(day, Literal) and isinstance(day.value, int):
        return Literal(day.value * _DAY_MICROS, target)
    return coerce(day, target)


def _out_of_range() -> QueryError:
    return QueryError(
        "bad-literal",
        "an interval moves a constant date out of the years 1 to 9999",
        remedy="use a shorter interval",
    )
