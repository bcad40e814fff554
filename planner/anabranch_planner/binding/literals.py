"""Typed SQL constants: numbers, dates, timestamps and intervals as in Spark, and their casts.

>>> str(number("1.50").type), number("7").value
('decimal(3,2)', 7)
>>> from anabranch_contract.queries.types import parse_type
>>> cast_literal(Literal("2020-01-02", parse_type("string")), parse_type("date"))
Literal(value=18263, type='date')
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal, InvalidOperation, Overflow, localcontext
from math import isfinite

from anabranch_contract.durations import parse_duration, unit_micros
from anabranch_contract.errors import PlannerError, QueryError
from anabranch_contract.queries.coercion import BIGINT, DOUBLE, INT, MAX_PRECISION, decimal_of, fits
from anabranch_contract.queries.expressions import Call, Expr, Literal
from anabranch_contract.queries.text_values import INTERVAL_BITS, interval_text, reader_of
from anabranch_contract.queries.types import (
    INTEGRAL,
    INTERVAL_UNITS,
    INTERVALS,
    NUMERIC,
    DataType,
    TypeKind,
    interval_of,
)

_EPOCH_DAY = date(1970, 1, 1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DATE = re.compile(r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2}))?)?")
_TIMESTAMP = re.compile(
    r"(\d{4})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T](\d{1,2}):(\d{1,2})(?::(\d{1,2})(?:\.(\d{1,6})\d*)?)?"
    r"\s*(Z|UTC|GMT|[+-]\d{1,2}:\d{2})?)?)?)?"
)
_TRUE = {"true", "t", "yes", "y", "1"}
_FALSE = {"false", "f", "no", "n", "0"}
_MONTHS = {"year": 12, "month": 1}
#: Unit of an interval in SQL text -> unit in the name of the interval's type.
_SHOWN = {"week": "day", **dict.fromkeys(("millisecond", "microsecond"), "second")}
_MOST_DIGITS = 1000
_DOUBLE = re.compile(r"[0-9.]+e[+-]?[0-9]+", re.IGNORECASE)
#: A number with a unit, as in ``1 year -2 months``.
_PARTS = re.compile(r"(?<!\d)([+-]?\d++(?:\.\d++)?)\s*+([a-z]++)", re.IGNORECASE)


def number(text: str) -> Literal:
    """An unsigned numeric literal: int, bigint, decimal or (with an exponent) double."""
    if "e" in text.lower():
        if not _DOUBLE.fullmatch(text):
            raise QueryError(
                "bad-literal", f"{text[:40]} has no exponent after e", remedy="write e.g. 1.5e3"
            )
        double = float(text)
        if not isfinite(double):
            raise QueryError(
                "bad-literal",
                f"{text[:40]} is out of the range of double",
                remedy="write a number below 1.8e308, or CAST('Infinity' AS DOUBLE)",
            )
        return Literal(double, DOUBLE)
    if "." not in text:
        return integer(_whole(text))
    value = Decimal(text)
    return Literal(value, _checked_decimal(value))


def _whole(text: str) -> int:
    """The value of an SQL integer literal, also beyond Python's limit of 4300 digits."""
    if len(text) > _MOST_DIGITS:
        raise QueryError(
            "bad-literal", f"a number has {len(text)} characters", remedy="write 38 digits at most"
        )
    return int(text)


def integer(value: int) -> Literal:
    """The typed literal of an integer, in the narrowest of int, bigint and decimal."""
    if fits(value, TypeKind.INT):
        return Literal(value, INT)
    if fits(value, TypeKind.BIGINT):
        return Literal(value, BIGINT)
    return Literal(Decimal(value), _checked_decimal(Decimal(value)))


def negated(literal: Literal) -> Literal:
    """The negated number or interval, in the narrowest type (-2147483648 is an int)."""
    value = literal.value
    if isinstance(value, int) and literal.type.kind in (TypeKind.INT, TypeKind.BIGINT):
        return integer(-value)
    if value is None and literal.type.kind in INTERVALS:
        return literal
    if isinstance(value, Decimal) and value == value.to_integral_value() and not literal.type.scale:
        return integer(-int(value))
    if isinstance(value, int | float | Decimal) and not isinstance(value, bool):
        return Literal(-value, literal.type)
    raise QueryError("type-mismatch", f"{literal} has no negative", remedy="negate numbers only")


def parse_date(text: str) -> int | None:
    """Days since 1970-01-01 of an SQL date literal, or None if ``text`` is not a date."""
    match = _DATE.fullmatch(text.strip())
    if match is None:
        return None
    try:
        day = date(int(match.group(1)), int(match.group(2) or 1), int(match.group(3) or 1))
    except ValueError:
        return None
    return (day - _EPOCH_DAY).days


def parse_timestamp(text: str, *, zoned: bool) -> int | None:
    """Microseconds since 1970 (UTC) of a timestamp literal; None if ``text`` is not a timestamp.

    ``zoned``: whether the text may contain a time zone.
    """
    match = _TIMESTAMP.fullmatch(text.strip())
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction, zone = match.groups()
    if zone and not zoned:
        return None
    try:
        moment = datetime(
            int(year),
            int(month or 1),
            int(day or 1),
            int(hour or 0),
            int(minute or 0),
            int(second or 0),
            int((fraction or "0").ljust(6, "0")),
            UTC,
        )
    except ValueError:
        return None
    shift = 0
    if zone and zone[0] in "+-":
        hours, minutes = zone[1:].split(":")
        shift = (int(hours) * 60 + int(minutes)) * (-1 if zone[0] == "-" else 1)
    return (moment - _EPOCH - timedelta(minutes=shift)) // timedelta(microseconds=1)


def interval(text: str, unit: str | None) -> Literal:
    """An interval literal: ``'5' MINUTE``, ``'1:30' HOUR TO MINUTE`` or ``'1 hour 30 minutes'``.

    Args:
        text: the text between the quotes (or the bare number).
        unit: the unit or span after the quotes, e.g. ``"HOUR TO MINUTE"``; None if there is none.

    Raises:
        QueryError: ``bad-interval``: months with shorter units, or a value unfit for the unit.
    """
    if unit is None:
        return _of_parts(re.sub(r"^\s*interval\b", "", text, flags=re.I))
    first, _, last = unit.lower().partition(" to ")
    if last:
        return _of_span(text, first, last)
    name = singular(first)
    if name in _MONTHS:
        if not re.fullmatch(r"\s*[+-]?\d+\s*", text):
            raise QueryError(
                "bad-interval",
                f"{text!r} is not a number of {name}s",
                remedy="write e.g. INTERVAL '3' MONTH, INTERVAL '1-6' YEAR TO MONTH",
            )
        return _checked_interval(int(text) * _MONTHS[name], (name, name))
    size = unit_micros(first)
    if size is None:
        raise QueryError(
            "bad-interval",
            f"there is no unit {first.upper()} of intervals",
            remedy="use YEAR, MONTH, WEEK, DAY, HOUR, MINUTE or SECOND",
        )
    try:
        exact = Decimal(text.strip()) * size
    except (InvalidOperation, Overflow):
        exact = Decimal("NaN")
    if not exact.is_finite():
        raise QueryError(
            "bad-interval",
            f"{text!r} is not a number of {first}s",
            remedy="write e.g. INTERVAL '5' MINUTE",
        )
    if exact != exact.to_integral_value() or ("." in text and unit_micros("second") != size):
        raise QueryError(
            "bad-interval",
            f"INTERVAL '{text}' {unit.upper()} is not a whole number",
            remedy="use a smaller unit",
        )
    return _checked_interval(int(exact), (name, name))


def _of_parts(text: str) -> Literal:
    """The interval of a text that contains units, such as ``1 hour 30 minutes``."""
    parts = [(count, singular(name)) for count, name in _PARTS.findall(text)]
    months = {name for _, name in parts} & _MONTHS.keys()
    if months and len(months) < len({name for _, name in parts}):
        raise QueryError(
            "bad-interval",
            "an interval mixes months with shorter units",
            remedy="add one after the other: x + INTERVAL '1' MONTH + INTERVAL '1' DAY",
        )
    names = [name for _, name in parts]
    if months and any("." in count for count, _ in parts):
        raise QueryError(
            "bad-interval",
            f"{text!r} has parts of months",
            remedy="write whole months and years, e.g. INTERVAL '1 year 6 months'",
        )
    if months and not _PARTS.sub("", text).strip():
        return _checked_interval(sum(int(count) * _MONTHS[name] for count, name in parts), names)
    try:
        return _checked_interval(parse_duration(text), names)
    except QueryError as cause:
        raise QueryError("bad-interval", cause.message, remedy=cause.remedy) from cause


def _of_span(text: str, first: str, last: str) -> Literal:
    """The interval of a text such as ``1 02:30``, with the units from ``first`` to ``last``."""
    try:
        kind = interval_of(singular(first), singular(last))
    except PlannerError as cause:
        raise QueryError("bad-interval", cause.message, remedy=cause.remedy) from cause
    try:
        found = reader_of(kind)(text)
    except OverflowError:
        found = None
    if found is None:
        example = interval_text(0, kind)
        raise QueryError(
            "bad-interval",
            f"{text!r} is not an interval of {first.upper()} TO {last.upper()}",
            remedy=f"write e.g. {example}",
        )
    return Literal(found, kind)


def _checked_interval(value: int, names: Sequence[str]) -> Literal:
    """The interval of ``value`` microseconds or months, written in the units ``names``."""
    units = [_SHOWN.get(name, name) for name in names] or ["day", "second"]
    known = next((k for k in INTERVAL_UNITS.values() if set(units) <= set(k)), None)
    units = sorted(units, key=known.index) if known else ["day", "second"]
    kind = interval_of(units[0], units[-1])
    limit = 1 << (INTERVAL_BITS[kind.kind] - 1)
    if not -limit <= value < limit:
        raise QueryError("bad-interval", "an interval is too long", remedy="use a shorter interval")
    return Literal(value, kind)


def singular(name: str) -> str:
    """The name of an interval's unit in the singular and in lower case."""
    return name.lower().removesuffix("s")


def cast_literal(literal: Literal, target: DataType) -> Literal | None:
    """``CAST(literal AS target)`` as a literal; None if Spark's cast fails or is uncertain."""
    value, source = literal.value, literal.type
    if value is None or source == target:
        return Literal(value, target)
    if source.kind in INTERVALS:
        # No unit is cut off if the target type's last unit is as short as the source's.
        same = source.kind is target.kind and target.scale >= source.scale
        return Literal(value, target) if same else None
    if source.kind is TypeKind.STRING:
        return _cast_text(str(value), target)
    if target.kind is TypeKind.STRING:
        return Literal(str(value), target) if source.kind in INTEGRAL else None
    if source.kind in NUMERIC and target.kind in NUMERIC and not isinstance(value, bool):
        return _cast_number(value, target)
    return None


def coerce(expr: Expr, target: DataType) -> Expr:
    """``expr`` as type ``target``: unchanged, a converted literal, or a cast."""
    if expr.type == target:
        return expr
    if isinstance(expr, Literal):
        folded = cast_literal(expr, target)
        if folded is not None:
            return folded
    return Call("cast", (expr,), target)


def _cast_number(value: object, target: DataType) -> Literal | None:
    if target.kind in (TypeKind.DOUBLE, TypeKind.FLOAT):
        wanted = float(value)  # type: ignore[arg-type]
        # Fold a float literal only if single precision leaves its value unchanged.
        kept = target.kind is TypeKind.DOUBLE and isfinite(wanted)
        return Literal(wanted, target) if kept else None
    if isinstance(value, float):
        return None
    exact = Decimal(str(value))
    if exact and exact.adjusted() > MAX_PRECISION:
        return None
    if target.kind in INTEGRAL:
        if exact != exact.to_integral_value() or not fits(int(exact), target.kind):
            return None
        return Literal(int(exact), target)
    with localcontext() as context:
        context.prec = 2 * MAX_PRECISION
        scaled = exact.quantize(Decimal(1).scaleb(-target.scale))
        if scaled != exact or decimal_of(scaled).precision > target.precision:
            return None
        return Literal(scaled, target)


def _cast_text(text: str, target: DataType) -> Literal | None:
    kind, bare = target.kind, text.strip()
    parsed: int | None = None
    if kind is TypeKind.BOOLEAN:
        if bare.lower() in _TRUE | _FALSE:
            return Literal(bare.lower() in _TRUE, target)
        return None
    if kind is TypeKind.DATE:
        parsed = parse_date(text)
    elif kind is TypeKind.TIMESTAMP:
        parsed = parse_timestamp(text, zoned=True)
    elif kind is TypeKind.TIMESTAMP_NTZ:
        parsed = parse_timestamp(text, zoned=False)
    elif kind in INTERVALS:
        try:
            parsed = reader_of(target)(text)
        except OverflowError:
            return None
    elif kind in INTEGRAL:
        is_whole = len(bare) <= _MOST_DIGITS and re.fullmatch(r"[+-]?\d+", bare)
        parsed = int(bare) if is_whole else None
        parsed = parsed if parsed is not None and fits(parsed, kind) else None
    elif kind in NUMERIC:
        if not re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", bare, re.IGNORECASE):
            return None
        if kind is TypeKind.DECIMAL:
            return _cast_number(Decimal(bare), target)
        return _cast_number(float(bare), target)
    return None if parsed is None else Literal(parsed, target)


def _checked_decimal(value: Decimal) -> DataType:
    kind = decimal_of(value)
    if kind.precision > MAX_PRECISION:
        raise QueryError(
            "bad-literal",
            f"{value} has more than {MAX_PRECISION} digits",
            remedy="shorten it, or write it as a double: 1.5e0",
        )
    return kind
