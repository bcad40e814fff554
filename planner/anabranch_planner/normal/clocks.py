"""Sums of times in conditions on ``now()``: ``date_trunc('week', now()) - INTERVAL '1' DAY``.

A *clock* is a step function of the batch's time that never decreases: ``now()`` plus a constant,
rounded down to a unit. Constants are in microseconds. Months, which have no fixed length, are added
only to clocks that are rounded to months, so that the day of the month never has to be reduced.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from anabranch_contract.queries.coercion import TIMESTAMP
from anabranch_contract.queries.expressions import NOW, Call, Expr, Literal
from anabranch_contract.queries.types import TIMESTAMPS, TypeKind

TIMES = frozenset({*TIMESTAMPS, TypeKind.DATE})
_DAY = 86_400_000_000
WEEK = 7 * _DAY
#: Unit of a date or time -> its length in microseconds.
UNITS = {
    "microsecond": 1, "millisecond": 1_000, "second": 1_000_000, "minute": 60_000_000,
    "hour": 3_600_000_000, "day": _DAY, "week": WEEK,
}  # fmt: skip
#: Unit of time with a variable length -> its number of months.
MONTHS = {"month": 1, "quarter": 3, "year": 12}
#: Beginning of the first whole week after 1970-01-01, a Thursday, in microseconds.
_MONDAY = 4 * _DAY
#: SQL function that counts units since 1970 -> the counted unit, and the inverse function.
_SINCE_1970 = {
    "unix_seconds": ("second", "timestamp_seconds"),
    "unix_millis": ("millisecond", "timestamp_millis"),
    "unix_micros": ("microsecond", "timestamp_micros"),
}
#: Maximum offset from ``now()`` for which a clock is certainly after 1970, in microseconds.
_AGES = 50 * 365 * _DAY


@dataclass(frozen=True, slots=True)
class Clock:
    """``now()`` plus ``before``, rounded down to a multiple of ``unit`` (microseconds); if
    ``months`` is not 0, rounded down to a multiple of ``months`` months, plus ``later`` months."""

    before: int = 0
    unit: int = 1
    months: int = 0
    later: int = 0


@dataclass(frozen=True, slots=True)
class TimeSum:
    """A sum of clocks and other expressions, each with a sign, and of constant microseconds."""

    clocks: tuple[tuple[int, Clock], ...] = ()
    others: tuple[tuple[int, Expr], ...] = ()
    constant: int = 0

    def minus(self, other: TimeSum) -> TimeSum:
        """The difference of two sums of times."""
        return TimeSum(
            (*self.clocks, *((-sign, one) for sign, one in other.clocks)),
            (*self.others, *((-sign, one) for sign, one in other.others)),
            self.constant - other.constant,
        )

    def gathered(self) -> TimeSum:
        """The sum with its only timestamp and variable intervals merged, ``ts + wait``."""
        times = [term for term in self.others if term[1].type.kind in TIMESTAMPS]
        spans = [term for term in self.others if term[1].type.kind is TypeKind.INTERVAL]
        if len(times) != 1 or len(times) + len(spans) != len(self.others):
            return self
        ((own, found),) = times
        for sign, span in spans:
            found = Call("add" if sign == own else "sub", (found, span), found.type)
        return replace(self, others=((own, found),))


def unit_of(exprs: Iterable[Expr]) -> int:
    """Microseconds that an integer in a comparison of ``exprs`` means: the unit of the function
    among them that counts since 1970, else a day, as in a difference of dates."""
    for expr in exprs:
        found = _counted(expr)
        if found is not None:
            return UNITS[_SINCE_1970[found[1]][0]]
        inside = expr.op in ("add", "sub") if isinstance(expr, Call) else False
        if isinstance(expr, Call) and inside and (unit := unit_of(expr.args)) != _DAY:
            return unit
    return _DAY


def time_sum(expr: Expr, unit: int = _DAY) -> TimeSum:
    """A bound ``expr`` as a sum of times; if it contains no clock, as one term plus a constant.

    Args:
        unit: microseconds that an integer means.
    """
    other = TimeSum(others=((1, expr),))
    if isinstance(expr, Literal):
        known = isinstance(expr.value, int)
        if known and expr.type.kind is TypeKind.INTERVAL:
            return TimeSum(constant=int(str(expr.value)))
        if known and expr.type.kind in (TypeKind.INT, TypeKind.BIGINT):
            return TimeSum(constant=int(str(expr.value)) * unit)
        return other
    if not isinstance(expr, Call):
        return other
    if expr.op == NOW:
        return TimeSum(clocks=((1, Clock()),))
    counted = _counted(expr)
    if counted is not None:
        moment, (name, inverse) = counted[0], _SINCE_1970[counted[1]]
        if UNITS[name] != unit:
            return other
        found = _floor(time_sum(moment), name)
        # After 1970, rounding down and rounding towards zero are the same.
        near = found is not None and abs(found.clocks[0][1].before) < _AGES
        return (
            found if found and near else TimeSum(others=((1, Call(inverse, (expr,), TIMESTAMP)),))
        )
    if expr.op == "datediff" and unit != _DAY:
        return other
    if expr.op in ("add", "sub", "datediff"):
        left, right = (time_sum(arg, unit) for arg in expr.args)
        return left.minus(right if expr.op != "add" else TimeSum().minus(right))
    if expr.op in ("date_add", "timestampadd", "add_months"):
        return _moved(expr) or other
    rounded = _rounded(expr)
    return other if rounded is None else rounded


def _counted(expr: Expr) -> tuple[Expr, str] | None:
    """The time for which ``expr`` is the count of seconds, milli- or microseconds since 1970, and
    the counting function; None for other expressions."""
    if not isinstance(expr, Call):
        return None
    if expr.op in _SINCE_1970:
        return expr.args[0], expr.op
    if expr.op != "div_int":
        return None
    micros, by = expr.args
    whole = isinstance(micros, Call) and micros.op == "unix_micros"
    million = isinstance(by, Literal) and by.value == 1_000_000
    # unix_timestamp(t)
    return (
        (micros.args[0], "unix_seconds") if isinstance(micros, Call) and whole and million else None
    )


def _moved(expr: Call) -> TimeSum | None:
    """The sum for a time plus a number of units of time; None if the number is not constant."""
    if expr.op == "timestampadd":
        named, number, base = expr.args
        name = str(named.value) if isinstance(named, Literal) else ""
    else:
        base, number = expr.args
        name = "day" if expr.op == "date_add" else "month"
    if not isinstance(number, Literal) or not isinstance(number.value, int):
        return None
    count, below = int(str(number.value)), time_sum(base)
    if name in UNITS:
        return below.minus(TimeSum(constant=-count * UNITS[name]))
    if name not in MONTHS or below.others or below.constant or len(below.clocks) != 1:
        return None
    ((sign, clock),) = below.clocks
    if sign < 0 or not clock.months:
        return None
    return TimeSum(clocks=((1, replace(clock, later=clock.later + count * MONTHS[name])),))


def _rounded(expr: Call) -> TimeSum | None:
    """The sum for a clock that is rounded, or cast between types of times; None for other calls."""
    if expr.op == "cast":
        (inner,), kind = expr.args, expr.type.kind
        if kind not in TIMES or inner.type.kind not in TIMES:
            return None
        if kind is not TypeKind.DATE or inner.type.kind is TypeKind.DATE:
            # In UTC a date is its midnight, and both types of timestamps have the same values.
            return time_sum(inner)
        name = "day"
    elif expr.op in ("date_trunc", "trunc"):
        named, inner = expr.args if expr.op == "date_trunc" else reversed(expr.args)
        name = str(named.value) if isinstance(named, Literal) else ""
    else:
        return None
    return _floor(time_sum(inner), name)


def _floor(below: TimeSum, name: str) -> TimeSum | None:
    """``below``, a clock of ``now()`` plus a constant, rounded down to unit ``name``, or None."""
    if below.others or len(below.clocks) != 1 or below.clocks[0][0] < 0:
        return None
    clock = below.clocks[0][1]
    if name in MONTHS:
        return _to_months(clock, below.constant, MONTHS[name])
    unit, first = UNITS.get(name, 0), _MONDAY if name == "week" else 0
    rest = below.constant - first
    if not unit:
        return None
    if clock.months or clock.unit > unit:
        # The clock is already rounded to a greater unit, which is a multiple of this unit.
        done = rest % unit == 0 and (not clock.months or unit <= _DAY)
        return below if done else None
    if rest % clock.unit:
        return None
    return TimeSum(clocks=((1, Clock(clock.before + rest, unit)),), constant=first)


def _to_months(clock: Clock, constant: int, months: int) -> TimeSum | None:
    """``clock`` (of ``now()``) plus ``constant``, rounded down to months; None if not exact."""
    if clock.months:
        if constant or max(months, clock.months) % min(months, clock.months):
            return None
        if clock.later % months:
            return None
        made = replace(clock, months=max(months, clock.months))
    elif clock.unit <= _DAY and constant % clock.unit == 0:
        made = Clock(clock.before + constant, months=months)
    else:
        return None
    return TimeSum(clocks=((1, made),))
