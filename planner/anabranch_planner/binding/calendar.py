"""Dates and timestamps plus or minus intervals that count months or days.

A year or a month has no fixed length, so only a constant date can be moved by one: the sum is
computed while names are resolved. As in Spark, the 31st becomes the last day of a shorter month. A
date column may be moved by days and by shorter units. If it is moved by days, it remains a date.
"""

from __future__ import annotations

import calendar
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta

from sqlglot import exp

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import TIMESTAMP
from anabranch_contract.queries.expressions import Call, Expr, Literal
from anabranch_contract.queries.types import TIMESTAMPS, DataType, TypeKind
from anabranch_planner.sql.scope import Scope
from anabranch_planner.sql.unresolved import Node

DATE = DataType(TypeKind.DATE)
_NAIVE = DataType(TypeKind.TIMESTAMP_NTZ)
_DAY_MICROS = 86_400_000_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MONTHS = {"year": 12, "month": 1}
_DAYS = frozenset({"day", "week"})
#: ``1 year -2 months``.
_PARTS = re.compile(r"([+-]?\d+)\s*([a-z]+)", re.IGNORECASE)
_SPAN = re.compile(r"([+-]?)(\d+)-(\d{1,2})")


def moved(op: str, node: Node, scope: Scope, typed: Callable[[Node, Scope], Expr]) -> Expr | None:
    """The sum or difference ``node`` of a date or timestamp and an interval, as a typed expression.

    Args:
        op: ``add`` or ``sub``.
        typed: the function that typechecks the operands.

    Returns:
        None if neither side is an interval of months, so that no date is moved.

    Raises:
        QueryError: ``bad-interval``: a column is moved by months; ``bad-literal``: out of range.
    """
    for side, interval in ((node.this, node.expression), (node.expression, node.this)):
        if op == "sub" and side is node.expression:
            return None
        months = months_of(interval)
        if months is not None:
            return _by_months(typed(side, scope), months if op == "add" else -months, interval)
        if _is_interval(interval):
            found = typed(side, scope)
            if found.type.kind is TypeKind.DATE:
                return _by_time(op, found, typed(interval, scope), days=counts_days(interval))
            return None
    return None


def months_of(node: Node) -> int | None:
    """The number of months of a constant interval of years and months; None for anything else.

    Raises:
        QueryError: ``bad-interval``: months are mixed with shorter units, or a number is not whole.
    """
    if isinstance(node, exp.Paren):
        return months_of(node.this)
    if isinstance(node, exp.Neg):
        inner = months_of(node.this)
        return None if inner is None else -inner
    if isinstance(node, exp.Add | exp.Sub):
        left, right = months_of(node.this), months_of(node.expression)
        if left is None or right is None:
            return None
        return left + right if isinstance(node, exp.Add) else left - right
    if not isinstance(node, exp.Interval):
        return None
    return _months_of_literal(node)


def counts_days(node: Node) -> bool:
    """Whether an interval has only days and weeks; a date moved by it remains a date."""
    if isinstance(node, exp.Paren | exp.Neg):
        return counts_days(node.this)
    if isinstance(node, exp.Add | exp.Sub):
        return counts_days(node.this) and counts_days(node.expression)
    return isinstance(node, exp.Interval) and _units(node) <= _DAYS


def _is_interval(node: Node) -> bool:
    if isinstance(node, exp.Paren | exp.Neg):
        return _is_interval(node.this)
    if isinstance(node, exp.Add | exp.Sub):
        return _is_interval(node.this) and _is_interval(node.expression)
    return isinstance(node, exp.Interval)


def _months_of_literal(node: exp.Interval) -> int | None:
    units, (sign, text) = _units(node), _text(node)
    if not units & _MONTHS.keys():
        return None
    if not units <= _MONTHS.keys():
        raise QueryError(
            "bad-interval",
            "an interval mixes months with shorter units",
            remedy="add one after the other: date + INTERVAL '1' MONTH + INTERVAL '1' DAY",
        )
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        span = _SPAN.fullmatch(text.strip())
        if span is not None and int(span[3]) < 12:
            months = int(span[2]) * 12 + int(span[3])
            return sign * (-months if span[1] == "-" else months)
    elif unit is not None:
        if re.fullmatch(r"\s*[+-]?\d+\s*", text):
            return sign * int(text) * _MONTHS[next(iter(units))]
    else:
        parts = _PARTS.findall(text)
        return sign * sum(int(count) * _MONTHS[_singular(name)] for count, name in parts)
    raise QueryError(
        "bad-interval",
        f"{text!r} is not a number of {' and '.join(sorted(units))}s",
        remedy="write e.g. INTERVAL '3' MONTH, INTERVAL '1-6' YEAR TO MONTH",
    )


def _units(node: exp.Interval) -> set[str]:
    unit = node.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        return {_singular(unit.this.name), _singular(unit.expression.name)}
    if unit is not None:
        return {_singular(unit.name)}
    return {_singular(name) for _, name in _PARTS.findall(_text(node)[1])} or {""}


def _text(node: exp.Interval) -> tuple[int, str]:
    sign, value = 1, node.this
    while isinstance(value, exp.Neg | exp.Paren):
        sign = -sign if isinstance(value, exp.Neg) else sign
        value = value.this
    return sign, str(value.this) if isinstance(value, exp.Literal) else ""


def _singular(name: str) -> str:
    return name.lower().removesuffix("s")


def _by_months(moment: Expr, months: int, interval: Node) -> Expr:
    kind = moment.type.kind
    if kind not in TIMESTAMPS | {TypeKind.DATE}:
        raise QueryError(
            "type-mismatch",
            f"{moment} is of type {moment.type}, and an interval of months is added to it",
            remedy="write DATE '1994-01-31' + INTERVAL '1' MONTH",
        )
    if not isinstance(moment, Literal):
        raise QueryError(
            "bad-interval",
            f"{interval.sql(dialect='spark')} has no fixed length, and {moment} is not a constant",
            remedy="move the constant that it is compared with, as in x < DATE '1994-01-31' + "
            "INTERVAL '1' MONTH, or use WEEK, DAY, HOUR, MINUTE or SECOND",
        )
    if not isinstance(moment.value, int):
        return moment
    size = 1 if kind is TypeKind.DATE else _DAY_MICROS
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


def _by_time(op: str, day: Expr, interval: Expr, *, days: bool) -> Expr:
    """The date ``day`` moved by ``interval``: a date if ``days`` (whole days), else a timestamp."""
    if not days:
        return Call(op, (_cast(day, TIMESTAMP), interval), TIMESTAMP)
    if isinstance(day, Literal) and isinstance(interval, Literal):
        if not isinstance(day.value, int) or not isinstance(interval.value, int):
            return day
        by = interval.value // _DAY_MICROS
        after = day.value + (by if op == "add" else -by)
        try:
            _EPOCH + timedelta(days=after)
        except OverflowError as cause:
            raise _out_of_range() from cause
        return Literal(after, DATE)
    # In UTC a day has 24 hours.
    return _cast(Call(op, (_cast(day, _NAIVE), interval), _NAIVE), DATE)


def _cast(expr: Expr, target: DataType) -> Expr:
    if isinstance(expr, Literal) and isinstance(expr.value, int) and target.kind in TIMESTAMPS:
        return Literal(expr.value * _DAY_MICROS, target)
    return Call("cast", (expr,), target)


def _out_of_range() -> QueryError:
    return QueryError(
        "bad-literal",
        "an interval moves a constant date out of the years 1 to 9999",
        remedy="use a shorter interval",
    )
