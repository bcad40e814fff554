"""Signatures of the SQL functions of dates and timestamps."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from decimal import Decimal

from anabranch_contract.errors import QueryError
from anabranch_contract.queries.coercion import BIGINT, DATE, DOUBLE, INT, STRING, TIMESTAMP
from anabranch_contract.queries.expressions import NOW, Call, Expr, Literal, is_null
from anabranch_contract.queries.time_patterns import check_read, check_written
from anabranch_contract.queries.types import NUMERIC, TIMESTAMPS, DataType, TypeKind
from anabranch_planner.binding.functions.signatures import (
    Argument,
    Rewriting,
    Signature,
    bad_literal,
    converted,
    rewriting,
    text_of,
)
from anabranch_planner.binding.literals import coerce
from anabranch_planner.sql import functions

_MICROS, _QUOTIENT = DataType(TypeKind.DECIMAL, 8, 6), DataType(TypeKind.DECIMAL, 17, 9)
#: Spelling of a unit of time -> the unit's full name.
_UNITS = {
    **dict.fromkeys(("microsecond", "microseconds", "us"), "microsecond"),
    **dict.fromkeys(("millisecond", "milliseconds", "ms"), "millisecond"),
    **dict.fromkeys(("second", "seconds", "s"), "second"),
    **dict.fromkeys(("minute", "minutes", "m"), "minute"),
    **dict.fromkeys(("hour", "hours", "h"), "hour"),
    **dict.fromkeys(("day", "days", "dd", "d"), "day"),
    **dict.fromkeys(("week", "weeks", "w"), "week"),
    **dict.fromkeys(("month", "months", "mm", "mon"), "month"),
    **dict.fromkeys(("quarter", "quarters"), "quarter"),
    **dict.fromkeys(("year", "years", "yyyy", "yy"), "year"),
}
_SECONDS, _LOCAL = DataType(TypeKind.DECIMAL, 16, 6), DataType(TypeKind.TIMESTAMP_NTZ)
_WEEK = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_DEFAULT = "yyyy-MM-dd HH:mm:ss"
#: Default origin of weeks, the Monday 2000-01-03, in microseconds since 1970.
_MONDAY = 946_857_600_000_000
_TRUNCATED = frozenset({"week", "month", "quarter", "year"})


def _binned(args: Sequence[Expr]) -> Expr:
    """Typed ``date_bin(width, ts[, origin])``: the beginning of the interval with ``ts``."""
    width, *moments = args
    size = width.value if isinstance(width, Literal) else None
    if width.type.kind is not TypeKind.INTERVAL or not isinstance(size, int) or size <= 0:
        raise bad_literal(
            "date_bin", width, "it is no length of time", "write INTERVAL '15' MINUTE; of months "
            "and years date_trunc('month', ts)",
        )  # fmt: skip
    moment, *origins = (
        functions.call("unix_micros", [converted("date_bin", one, Argument.TIMESTAMP)])
        for one in moments
    )
    origin = origins[0] if origins else Literal(_MONDAY, BIGINT)
    since = Call("sub", (moment, origin), BIGINT)
    past = Call("pmod", (since, Literal(size, BIGINT)), BIGINT)
    return functions.call("timestamp_micros", [Call("sub", (moment, past), BIGINT)])


def unit(name: str, arg: Expr, known: frozenset[str] | None = None) -> Literal:
    """The unit of time that an SQL function's argument names, as a literal of its full name.

    Raises:
        QueryError: ``bad-literal``.
    """
    found = _UNITS.get(text_of(arg).lower())
    if found is None or (known is not None and found not in known):
        listed = "', '".join(sorted(known or set(_UNITS.values())))
        raise bad_literal(name, arg, "there is no such unit", f"write one of '{listed}'")
    return Literal(found, STRING)


def _unit_at(
    name: str, place: int, known: frozenset[str] | None = None
) -> Callable[[list[Expr]], list[Expr]]:
    def check(args: list[Expr]) -> list[Expr]:
        args[place] = unit(name, args[place], known)
        return args

    return check


def _pattern(name: str, check: Callable[[str], None]) -> Callable[[list[Expr]], list[Expr]]:
    def checked(args: list[Expr]) -> list[Expr]:
        try:
            check(text_of(args[1]))
        except ValueError as cause:
            remedy = f"write e.g. {name}(x, 'yyyy-MM-dd HH:mm:ss')"
            raise bad_literal(name, args[1], str(cause), remedy) from cause
        return args

    return checked


_FORMAT = Signature(
    "date_format",
    (Argument.TIMESTAMP, Argument.PATTERN),
    STRING,
    check=_pattern("date_format", check_written),
)
_PARSE = Signature(
    "to_timestamp",
    (Argument.TEXT, Argument.PATTERN),
    TIMESTAMP,
    check=_pattern("to_timestamp", check_read),
)
_DATE_ADD = Signature("date_add", (Argument.DATE, Argument.INT), DATE)
_DIFFERENCE = Signature(
    "timestampdiff",
    (Argument.PATTERN, Argument.TIMESTAMP, Argument.TIMESTAMP),
    BIGINT,
    check=_unit_at("timestampdiff", 0),
)


def _date_sub(args: Sequence[Expr]) -> Expr:
    days = converted("date_sub", args[1], Argument.INT)
    if isinstance(days, Literal) and isinstance(days.value, int):
        return _DATE_ADD([args[0], Literal(-days.value, INT)])
    return _DATE_ADD([args[0], Call("neg", (days,), INT)])


def _datediff(args: Sequence[Expr]) -> Expr:
    if len(args) == 3:
        return _DIFFERENCE(args)
    end, start = (converted("datediff", arg, Argument.DATE) for arg in args)
    return Call("datediff", (end, start), INT)


def _timestampadd(args: Sequence[Expr]) -> Expr:
    if len(args) == 2:
        return _DATE_ADD(args)
    kind = args[2].type if args[2].type.kind in TIMESTAMPS else TIMESTAMP
    moment = (
        converted("timestampadd", args[2], Argument.TIMESTAMP) if kind == TIMESTAMP else args[2]
    )
    name = unit("timestampadd", converted("timestampadd", args[0], Argument.PATTERN))
    number = converted("timestampadd", args[1], Argument.BIGINT)
    return Call("timestampadd", (name, number, moment), kind)


def _to_timestamp(args: Sequence[Expr]) -> Expr:
    if len(args) == 1:
        return _parsed("to_timestamp", args[0], TIMESTAMP)
    return _PARSE(args)


def _to_timestamp_ntz(args: Sequence[Expr]) -> Expr:
    found = _parsed("to_timestamp_ntz", args[0], _LOCAL) if len(args) == 1 else _PARSE(args)
    return coerce(found, _LOCAL)


def _to_date(args: Sequence[Expr]) -> Expr:
    if len(args) == 1:
        return _parsed("to_date", args[0], DATE)
    return coerce(_PARSE(args), DATE)


def _parsed(name: str, arg: Expr, target: DataType) -> Expr:
    if arg.type.kind not in TIMESTAMPS | {TypeKind.DATE, TypeKind.STRING, TypeKind.NULL}:
        raise QueryError(
            "type-mismatch",
            f"{name}() takes a text, a date or a timestamp, but {arg} is of type {arg.type}",
            remedy="write timestamp_seconds(x) for seconds since 1970",
        )
    return coerce(arg, target)


def _from_unixtime(args: Sequence[Expr]) -> Expr:
    seconds = converted("from_unixtime", args[0], Argument.BIGINT)
    pattern = args[1] if len(args) > 1 else Literal(_DEFAULT, STRING)
    return _FORMAT([Call("timestamp_seconds", (seconds,), TIMESTAMP), pattern])


def _unix_timestamp(args: Sequence[Expr]) -> Expr:
    moment = args[0] if args else Call(NOW, (), TIMESTAMP)
    if moment.type.kind is TypeKind.STRING:
        pattern = args[1] if len(args) > 1 else Literal(_DEFAULT, STRING)
        moment = _PARSE([moment, pattern])
    micros = Call("unix_micros", (converted("unix_timestamp", moment, Argument.TIMESTAMP),), BIGINT)
    # unix_timestamp() rounds towards zero, unlike unix_seconds().
    return Call("div_int", (micros, Literal(1_000_000, BIGINT)), BIGINT)


def _named(pattern: str) -> Callable[[Sequence[Expr]], Expr]:
    return lambda args: _FORMAT([args[0], Literal(pattern, STRING)])


def _since_1970(args: Sequence[Expr]) -> Expr:
    day = converted("unix_date", args[0], Argument.DATE)
    return Call("datediff", (day, Literal(0, DATE)), INT)


def seconds_of(moment: Expr) -> Expr:
    """Typed ``EXTRACT(SECOND FROM moment)``: seconds with their fraction, as a decimal."""
    micros = Call("unix_micros", (converted("EXTRACT", moment, Argument.TIMESTAMP),), BIGINT)
    minute = Literal(60_000_000, BIGINT)
    rest = Call("pmod", (micros, minute), BIGINT)
    exact = DataType(TypeKind.DECIMAL, 8, 0)
    parts = (Call("cast", (rest,), exact), Literal(Decimal(1_000_000), exact))
    return Call("cast", (Call("div", parts, _QUOTIENT),), _MICROS)


def _of_date(op: str) -> Signature:
    return Signature(op, (Argument.DATE,), DATE if op == "last_day" else INT)


def _next_day(args: list[Expr]) -> list[Expr]:
    day = text_of(args[1]).lower()
    found = next((d for d in _WEEK if day in (d, d[:3], d[:2])), None)
    if found is None:
        raise bad_literal("next_day", args[1], "there is no such day", "write 'MON' etc.")
    args[1] = Literal(found[:3], STRING)
    return args


def _zone(args: list[Expr]) -> list[Expr]:
    functions.check_zone(text_of(args[1]))
    return args


def _moved(name: str) -> Signature:
    return Signature(name, (Argument.TIMESTAMP, Argument.PATTERN), TIMESTAMP, check=_zone)


def _try_to_timestamp(args: Sequence[Expr]) -> Expr:
    found = _to_timestamp(args)
    return Call("try", (found,), TIMESTAMP) if isinstance(found, Call) else found


def _make_timestamp(kind: DataType) -> Callable[[Sequence[Expr]], Expr]:
    """Rewriting of ``make_timestamp(year, month, day, hour, minute, second[, zone])``."""

    def made(args: Sequence[Expr]) -> Expr:
        parts = [converted("make_timestamp", arg, Argument.INT) for arg in args[:5]]
        parts.append(_seconds(args[5]))
        if any(map(is_null, parts)):
            return Literal(None, kind)
        found: Expr = Call("make_timestamp", tuple(parts), TIMESTAMP)
        if len(args) == 7:
            found = _moved("to_utc_timestamp")([found, args[6]])
        return coerce(found, kind)

    return made


def _seconds(arg: Expr) -> Expr:
    if arg.type.kind is TypeKind.NULL:
        return Literal(None, _SECONDS)
    if arg.type.kind not in NUMERIC:
        return coerce(converted("make_timestamp", arg, Argument.DOUBLE), _SECONDS)
    return coerce(arg, _SECONDS)


def _convert_timezone(args: Sequence[Expr]) -> Expr:
    """Typed ``convert_timezone([from, ]to, moment)``; ``from`` is UTC by default."""
    moment = converted("convert_timezone", args[-1], Argument.TIMESTAMP)
    if len(args) == 3:
        moment = _moved("to_utc_timestamp")([moment, args[0]])
    return coerce(_moved("from_utc_timestamp")([moment, args[-2]]), _LOCAL)


def _timezone(args: Sequence[Expr]) -> Expr:
    """Typed ``timezone(zone, x)``, also written ``x AT TIME ZONE zone``: the local time of a
    timestamp with time zone, or the timestamp of a local time."""
    zone, value = converted("timezone", args[0], Argument.PATTERN), args[1]
    if value.type.kind is TypeKind.TIMESTAMP_NTZ and not is_null(zone):
        moment, checked = _zone([value, zone])
        return Call("timezone", (checked, moment), TIMESTAMP)
    if value.type.kind not in TIMESTAMPS | {TypeKind.NULL}:
        raise QueryError(
            "type-mismatch",
            f"{value} AT TIME ZONE: {value} is of type {value.type}, not a timestamp",
            remedy=f"write CAST({value} AS TIMESTAMP_NTZ) for a local time, "
            f"CAST({value} AS TIMESTAMP) for a moment",
        )
    found = coerce(_moved("from_utc_timestamp")([value, zone]), _LOCAL)
    return Literal(None, TIMESTAMP) if value.type == _LOCAL else found


#: SQL function of dates and timestamps -> rewriting of its calls.
DATES: dict[str, Rewriting] = {
    **{
        op: rewriting(_of_date(op))
        for op in ("dayofweek", "dayofyear", "last_day", "weekday", "weekofyear")
    },
    **dict.fromkeys(
        ("current_timestamp", "now"), Rewriting(0, 0, lambda _: Call(NOW, (), TIMESTAMP))
    ),
    **dict.fromkeys(
        ("current_date", "curdate"),
        Rewriting(0, 0, lambda _: coerce(Call(NOW, (), TIMESTAMP), DATE)),
    ),
    "add_months": rewriting(Signature("add_months", (Argument.DATE, Argument.INT), DATE)),
    "date_add": Rewriting(2, 3, _timestampadd),
    "dateadd": Rewriting(2, 3, _timestampadd),
    "timestampadd": Rewriting(3, 3, _timestampadd),
    "date_sub": Rewriting(2, 2, _date_sub),
    "date_diff": Rewriting(2, 3, _datediff),
    "datediff": Rewriting(2, 3, _datediff),
    "timestampdiff": Rewriting(3, 3, _datediff),
    "date_format": rewriting(_FORMAT),
    "date_from_unix_date": Rewriting(1, 1, lambda args: _DATE_ADD([Literal(0, DATE), *args])),
    "date_trunc": rewriting(
        Signature(
            "date_trunc",
            (Argument.PATTERN, Argument.TIMESTAMP),
            TIMESTAMP,
            check=_unit_at("date_trunc", 0),
        )
    ),
    **dict.fromkeys(("date_bin", "time_bucket"), Rewriting(2, 3, _binned)),
    "dayname": Rewriting(1, 1, _named("EEE")),
    "from_utc_timestamp": rewriting(_moved("from_utc_timestamp")),
    "to_utc_timestamp": rewriting(_moved("to_utc_timestamp")),
    "timezone": Rewriting(2, 2, _timezone),
    "next_day": rewriting(
        Signature("next_day", (Argument.DATE, Argument.PATTERN), DATE, check=_next_day)
    ),
    "try_to_timestamp": Rewriting(1, 2, _try_to_timestamp),
    "from_unixtime": Rewriting(1, 2, _from_unixtime),
    "make_date": rewriting(
        Signature("make_date", (Argument.INT, Argument.INT, Argument.INT), DATE)
    ),
    "convert_timezone": Rewriting(2, 3, _convert_timezone),
    "make_timestamp": Rewriting(6, 7, _make_timestamp(TIMESTAMP)),
    "make_timestamp_ltz": Rewriting(6, 7, _make_timestamp(TIMESTAMP)),
    "make_timestamp_ntz": Rewriting(6, 6, _make_timestamp(_LOCAL)),
    "monthname": Rewriting(1, 1, _named("MMM")),
    "months_between": rewriting(
        Signature("months_between", (Argument.TIMESTAMP, Argument.TIMESTAMP), DOUBLE)
    ),
    "to_date": Rewriting(1, 2, _to_date),
    "to_timestamp": Rewriting(1, 2, _to_timestamp),
    "to_timestamp_ltz": Rewriting(1, 2, _to_timestamp),
    "to_timestamp_ntz": Rewriting(1, 2, _to_timestamp_ntz),
    "to_unix_timestamp": Rewriting(1, 2, _unix_timestamp),
    "trunc": rewriting(
        Signature(
            "trunc", (Argument.DATE, Argument.PATTERN), DATE, check=_unit_at("trunc", 1, _TRUNCATED)
        )
    ),
    "unix_date": Rewriting(1, 1, _since_1970),
    "unix_timestamp": Rewriting(0, 2, _unix_timestamp),
}
