"""Spark's functions of dates and timestamps, by numpy's proleptic Gregorian calendar, in UTC.

A date or timestamp beyond the range of its type is an error, as in Spark; Spark's ``date_add``
wraps around instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from anabranch_contract.queries.expressions import Call, Literal
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_runtime.columns.arrays import (
    MICROS_PER_DAY,
    Bools,
    Ints,
    all_present,
    fixed,
    overflow,
    present,
    unscaled,
    with_nulls,
)
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError

#: Unit of a fixed length -> its microseconds.
_LENGTHS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": 1_000_000,
    "minute": 60_000_000,
    "hour": 3_600_000_000,
    "day": MICROS_PER_DAY,
    "week": 7 * MICROS_PER_DAY,
}
_MONTHS = {"month": 1, "quarter": 3, "year": 12}
_WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
_DATE = DataType(TypeKind.DATE)
_SECONDS_PER_MONTH = 31 * 86_400
#: Operation -> microseconds per unit of its argument.
_FROM_UNIX = {"timestamp_seconds": 1_000_000, "timestamp_millis": 1_000, "timestamp_micros": 1}
#: Operation -> microseconds per unit of its result.
_TO_UNIX = {"unix_seconds": 1_000_000, "unix_millis": 1_000, "unix_micros": 1}


def _unit(call: Call) -> str:
    unit = call.args[0]
    assert isinstance(unit, Literal)
    return str(unit.value).lower()


def _integers(column: pa.Array) -> Ints:
    if pa.types.is_integer(column.type):
        return fixed(column, column.type.to_pandas_dtype()).astype(np.int64)
    return fixed(column, np.int32 if pa.types.is_date(column.type) else np.int64).astype(np.int64)


def _civil(days: Ints) -> tuple[Ints, Ints]:
    """Split dates into months since January 1970 and days of the month, from 1."""
    moment = days.astype("M8[D]")
    months = moment.astype("M8[M]")
    return months.astype(np.int64), (moment - months.astype("M8[D]")).astype(np.int64) + 1


def _first(months: Ints) -> Ints:
    """Return the first days of months (numbered since January 1970) as days since 1970."""
    days: Ints = months.astype("M8[M]").astype("M8[D]").astype(np.int64)
    return days


def _moved(days: Ints, months: Ints) -> Ints:
    """Add months to dates; the 31st becomes the last day of a shorter month."""
    before, day = _civil(days)
    target = before + months
    length = _first(target + 1) - _first(target)
    moved: Ints = _first(target) + np.minimum(day, length) - 1
    return moved


def _made(values: Ints, call: Call, valid: Any) -> pa.Array:
    """Return dates or times as a column of the call's type; raises an error if out of range."""
    target = arrow_type(call.type)
    if target.bit_width == 32:
        beyond = (values < -(2**31)) | (values >= 2**31)
        if (beyond if valid is None else beyond & valid).any():
            raise overflow(call.type)
        values = values.astype(np.int32)
    return with_nulls(values, target, valid)


def _days(op: Callable[[Ints], Ints]) -> Callable[[Call, list[pa.Array]], pa.Array]:
    def kernel(call: Call, args: list[pa.Array]) -> pa.Array:
        return _made(op(_integers(args[0])), call, present(args[0]))

    return kernel


def _day_of_year(days: Ints) -> Ints:
    return days - days.astype("M8[D]").astype("M8[Y]").astype("M8[D]").astype(np.int64) + 1


def _week_of_year(days: Ints) -> Ints:
    """Return the ISO 8601 week of dates: a week belongs to the year of its Thursday."""
    thursday: Ints = days - (days + 3) % 7 + 3
    week: Ints = (_day_of_year(thursday) - 1) // 7 + 1
    return week


def _last_day(days: Ints) -> Ints:
    return _first(_civil(days)[0] + 1) - 1


def date_add(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``date_add(date, days)``, an SQL function."""
    return _made(_integers(args[0]) + _integers(args[1]), call, all_present(*args))


def add_months(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``add_months(date, months)``, an SQL function."""
    return _made(_moved(_integers(args[0]), _integers(args[1])), call, all_present(*args))


def datediff(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``datediff(end, start)``: the days between two dates."""
    return _made(_integers(args[0]) - _integers(args[1]), call, all_present(*args))


def make_date(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``make_date(year, month, day)``, an SQL function.

    Raises:
        ExpressionError: there is no such date.
    """
    valid = all_present(*args)
    year, month, day = (_integers(arg) for arg in args)
    months = np.clip((year - 1970) * 12 + month - 1, -(10**7), 10**7)
    length = _first(months + 1) - _first(months)
    good = (month >= 1) & (month <= 12) & (day >= 1) & (day <= length) & (np.abs(year) < 800_000)
    wrong = ~good if valid is None else ~good & valid
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise ExpressionError(
            "bad-date",
            f"year {year[at]}, month {month[at]}, day {day[at]} are not a date",
            remedy="filter such rows out first",
        )
    return _made(_first(months) + day - 1, call, valid)


def make_timestamp(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``make_timestamp(year, month, day, hour, minute, second)`` in UTC; a second of 60 is
    the first second of the next minute.

    Raises:
        ExpressionError: there is no such time.
    """
    valid = all_present(*args)
    days = fixed(make_date(Call(call.op, call.args[:3], _DATE), _where(args[:3], valid)), np.int32)
    hour, minute = (_integers(arg) for arg in args[3:5])
    micros = np.array([value or 0 for value in unscaled(args[5])], dtype=np.int64)
    good = (hour >= 0) & (hour < 24) & (minute >= 0) & (minute < 60)
    good &= (micros >= 0) & (micros <= 60_000_000)
    wrong = ~good if valid is None else ~good & valid
    if wrong.any():
        at = int(np.flatnonzero(wrong)[0])
        raise ExpressionError(
            "bad-date",
            f"hour {hour[at]}, minute {minute[at]}, second {micros[at] / 1e6} are not a time",
            remedy="filter such rows out first",
        )
    clock = (hour * 60 + minute) * 60_000_000 + micros
    if valid is not None:
        days, clock = np.where(valid, days, 0), np.where(valid, clock, 0)
    return _made(days.astype(np.int64) * MICROS_PER_DAY + clock, call, valid)


def _where(columns: list[pa.Array], valid: Bools | None) -> list[pa.Array]:
    """Return columns of dates or times with NULL in rows that are not ``valid``."""
    if valid is None:
        return columns
    nothing, mask = pa.scalar(None, pa.int32()), pa.array(valid)
    return [pc.if_else(mask, column, nothing) for column in columns]


def trunc(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``trunc(date, unit)``: the first day of the date's week, month, quarter or year."""
    unit = call.args[1]
    assert isinstance(unit, Literal)
    days = _truncated(_integers(args[0]), str(unit.value))
    return _made(days, call, present(args[0]))


def date_trunc(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``date_trunc(unit, timestamp)``: the start of the unit that contains it."""
    unit, micros = _unit(call), _integers(args[1])
    if unit in _LENGTHS and unit != "week":
        size = _LENGTHS[unit]
        found = micros - np.mod(micros, size)
    else:
        found = _truncated(np.floor_divide(micros, MICROS_PER_DAY), unit) * MICROS_PER_DAY
    valid = present(args[1])
    below = found > micros
    if (below if valid is None else below & valid).any():
        raise overflow(call.type)
    return with_nulls(found, arrow_type(call.type), valid)


def _truncated(days: Ints, unit: str) -> Ints:
    if unit == "week":
        return days - (days + 3) % 7
    months = _civil(days)[0]
    return _first(months - months % _MONTHS[unit])


def timestampadd(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``timestampadd(unit, number, timestamp)``, an SQL function."""
    unit, valid = _unit(call), all_present(args[1], args[2])
    number, micros = _integers(args[1]), _integers(args[2])
    if unit in _MONTHS:
        days, time = np.divmod(micros, MICROS_PER_DAY)
        found = _moved(days, number * _MONTHS[unit]) * MICROS_PER_DAY + time
        far = np.abs(number) > 12 * 600_000
    else:
        size = _LENGTHS[unit]
        found = micros + number * size
        far = np.abs(number) > 2**63 // size
    wrapped = far | ((found < micros) & (number > 0)) | ((found > micros) & (number < 0))
    if (wrapped if valid is None else wrapped & valid).any():
        raise overflow(call.type)
    return with_nulls(found, arrow_type(call.type), valid)


def timestampdiff(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``timestampdiff(unit, start, end)``: whole units, rounded towards zero."""
    unit, valid = _unit(call), all_present(args[1], args[2])
    start, end = _integers(args[1]), _integers(args[2])
    if unit in _LENGTHS:
        if ((np.sign(start) != np.sign(end)) & (np.sign(end - start) == np.sign(start))).any():
            raise overflow(call.type)
        found = np.abs(end - start) // _LENGTHS[unit] * np.sign(end - start)
        return with_nulls(found, arrow_type(call.type), valid)
    days, time = np.divmod(start, MICROS_PER_DAY)
    later, later_time = np.divmod(end, MICROS_PER_DAY)
    # As in java.time, an incomplete last day does not count.
    later = later - ((later > days) & (later_time < time)) + ((later < days) & (later_time > time))
    months, day = _civil(days)
    later_months, later_day = _civil(later)
    whole = (later_months * 32 + later_day) - (months * 32 + day)
    found = np.abs(whole) // 32 * np.sign(whole)
    size = _MONTHS[unit]
    return with_nulls(np.abs(found) // size * np.sign(found), arrow_type(call.type), valid)


def months_between(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``months_between(end, start)``, with months of 31 days; rounded to eight digits."""
    parts = []
    for arg in args:
        days, time = np.divmod(_integers(arg), MICROS_PER_DAY)
        months, day = _civil(days)
        length = _first(months + 1) - _first(months)
        parts.append((months, day, day == length, time // 1_000_000))
    (months, day, last, second), (others, other, other_last, other_second) = parts
    whole = (months - others).astype(np.float64)
    seconds = (day - other) * 86_400 + second - other_second
    exact = whole + seconds.astype(np.float64) / _SECONDS_PER_MONTH
    rounded = np.floor(exact * 1e8 + 0.5) / 1e8
    found = np.where((day == other) | (last & other_last), whole, rounded)
    return with_nulls(found, arrow_type(call.type), all_present(*args))


def next_day(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``next_day(date, day)``: the first such weekday after the date."""
    wanted = call.args[1]
    assert isinstance(wanted, Literal)
    days = _integers(args[0])
    ahead = (_WEEK.index(str(wanted.value)) - (days + 3)) % 7
    return _made(days + np.where(ahead == 0, 7, ahead), call, present(args[0]))


def from_unix(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``timestamp_seconds``, ``timestamp_millis`` or ``timestamp_micros``."""
    if pa.types.is_null(args[0].type):
        return pa.nulls(len(args[0]), arrow_type(call.type))
    unit = pa.scalar(_FROM_UNIX[call.op], pa.int64())
    try:
        micros = pc.multiply_checked(args[0].cast(pa.int64()), unit)
    except pa.ArrowInvalid as error:
        raise overflow(call.type) from error
    return micros.view(arrow_type(call.type))


def to_unix(call: Call, args: list[pa.Array]) -> pa.Array:
    """Evaluate ``unix_seconds``, ``unix_millis`` or ``unix_micros``, rounded down."""
    if pa.types.is_null(args[0].type):
        return pa.nulls(len(args[0]), arrow_type(call.type))
    micros = fixed(args[0].view(pa.int64()), np.int64)
    return with_nulls(micros // _TO_UNIX[call.op], arrow_type(call.type), present(args[0]))


#: Operation -> kernel.
DATES: dict[str, Callable[[Call, list[pa.Array]], pa.Array]] = {
    "add_months": add_months,
    "date_add": date_add,
    "date_trunc": date_trunc,
    "datediff": datediff,
    "dayofweek": _days(lambda days: (days + 4) % 7 + 1),
    "dayofyear": _days(_day_of_year),
    "last_day": _days(_last_day),
    "make_date": make_date,
    "make_timestamp": make_timestamp,
    "months_between": months_between,
    "next_day": next_day,
    "timestampadd": timestampadd,
    "timestampdiff": timestampdiff,
    "trunc": trunc,
    "weekday": _days(lambda days: (days + 3) % 7),
    "weekofyear": _days(_week_of_year),
    **dict.fromkeys(_FROM_UNIX, from_unix),
    **dict.fromkeys(_TO_UNIX, to_unix),
}
#: Operations that can fail on a value.
FALLIBLE = frozenset({
    "add_months", "date_add", "date_trunc", "datediff", "last_day", "make_date", "make_timestamp",
    "next_day",
    "timestampadd",
    "timestampdiff", "trunc", *_FROM_UNIX,
})  # fmt: skip
