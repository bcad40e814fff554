"""Parsers of values from text, one value at a time, as Spark's ANSI casts parse them; and texts of
intervals.

The runtime casts whole columns with these functions, and the service checks samples of sources.
Unlike Spark they refuse years outside 0001 to 9999, time zones by region name, times without a
date, and numbers too close to the middle between two floats.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from fractions import Fraction
from functools import lru_cache
from math import inf, isfinite, nan
from typing import Any

from anabranch_contract.queries.types import INTEGRAL, INTERVALS, DataType, TypeKind

#: Decimal context for intermediate results, with more digits than any decimal type.
WIDE = Context(prec=400, Emax=999_999, Emin=-999_999)
#: Text whose cast always fails: the value of a scalar subquery with several rows.
SEVERAL_ROWS = "a scalar subquery that gives several rows"
#: Integral type -> its number of bits.
BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 64}
_INTEGER = re.compile(r"[+-]?[0-9]+")
_DECIMAL = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]{1,5})?")
_FLOAT = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?[dDfF]?")
_TRUE = frozenset({"t", "true", "y", "yes", "1"})
_FALSE = frozenset({"f", "false", "n", "no", "0"})
_DATE = re.compile(r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})(?:[ T].*)?)?)?", re.ASCII | re.DOTALL)
# Pattern of a timestamp, in which a time zone may only follow seconds.
_TIMESTAMP = re.compile(
    r"([+-]?\d{4,7})(?:-(\d{1,2})(?:-(\d{1,2})"
    r"(?:[ T](\d{1,2})(?::(\d{1,2})(?::(\d{1,2})(?:\.(\d*))?\s*([^\d\s.].*)?)?)?)?)?)?",
    re.ASCII,
)
_TIME = re.compile(r"T?\d{1,2}:.*", re.ASCII)
_OFFSET = re.compile(r"([+-])(?:(\d\d)(\d\d)|(\d{1,2})(?::(\d{1,2})(?::(\d{1,2}))?)?)", re.ASCII)
_NAMED_OFFSET = re.compile(r"(?:UTC|GMT|UT)([+-]\d{1,2}(?::\d{2})?)", re.ASCII)
#: Pattern of a format of ``to_number`` and ``to_char``, in capitals: sign, currency, digits before
#: the point, point, digits after it; a sign or angle brackets at the end if none at the beginning.
NUMBER_FORMAT = re.compile(
    r"(?=.*[09])(?!(?:S|MI).*(?:S|MI|PR)$)(S|MI)?(\$)?([09]+(?:[,G][09]+)*)?"
    r"(?:([.D])([09]*))?(S|MI|PR)?"
)
_SPACE = "".join(map(chr, range(33)))
_CONTROL = _SPACE + "".join(map(chr, range(127, 160)))
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Kind of interval -> lengths of its units, and its number of bits.
UNIT_SIZES = {
    TypeKind.INTERVAL: (86_400_000_000, 3_600_000_000, 60_000_000, 1_000_000),
    TypeKind.MONTHS: (12, 1),
}
INTERVAL_BITS = {TypeKind.INTERVAL: 64, TypeKind.MONTHS: 32}


def reader_of(kind: DataType) -> Callable[[str], Any]:
    """Return the function that parses text as ``kind``. It returns numbers and booleans, dates in
    days and timestamps in microseconds since 1970, intervals in microseconds or months, bytes; None
    if the text is not such a value.

    The returned function raises ValueError for text that only Spark can parse, and OverflowError
    for a decimal with too many digits, or an interval that is too long.
    """
    here = kind.kind
    if here in INTERVALS:
        return lambda text: _read_interval(text, kind)
    if here in INTEGRAL:
        return lambda text: _read_integer(text, BITS[here])
    readers: dict[TypeKind, Callable[[str], Any]] = {
        TypeKind.STRING: str,
        TypeKind.BINARY: str.encode,
        TypeKind.BOOLEAN: _read_boolean,
        TypeKind.DATE: _read_date,
        TypeKind.TIMESTAMP: lambda text: _read_timestamp(text, zoned=True),
        TypeKind.TIMESTAMP_NTZ: lambda text: _read_timestamp(text, zoned=False),
        TypeKind.DOUBLE: _read_float,
        TypeKind.FLOAT: _read_single,
        TypeKind.DECIMAL: lambda text: _read_decimal(text, kind),
    }
    return readers[here]


def moment_text(value: int, kind: TypeKind) -> str | None:
    """Return the SQL literal of a date (days) or timestamp (microseconds since 1970); None if its
    year is not in 1 to 9999.

    >>> moment_text(19723, TypeKind.DATE)
    "DATE '2024-01-01'"
    """
    try:
        if kind is TypeKind.DATE:
            return f"DATE '{(_EPOCH + timedelta(days=value)).date()}'"
        moment = _EPOCH + timedelta(microseconds=value)
    except OverflowError:
        return None
    return f"{kind.upper()} '{moment.replace(tzinfo=None)}'"


def interval_text(value: int, kind: DataType) -> str:
    """Return Spark's text of an interval of the type ``kind``.

    >>> from anabranch_contract.queries.types import parse_type
    >>> interval_text(-5_400_500_000, parse_type("interval day to second"))
    "INTERVAL '-0 01:30:00.5' DAY TO SECOND"
    """
    text, rest = "", abs(value)
    for n, size in enumerate(UNIT_SIZES[kind.kind]):
        if kind.precision <= n <= kind.scale:
            count, rest = divmod(rest, size)
            padded = kind.kind is TypeKind.INTERVAL and n > 0
            text += (_mark(kind, n) if text else "") + (f"{count:02}" if padded else str(count))
    if kind.units[1] == "second" and rest:
        text += f".{rest:06}".rstrip("0")
    units = " TO ".join(dict.fromkeys(kind.units)).upper()
    return f"INTERVAL '{'-' if value < 0 else ''}{text}' {units}"


def quantized(value: Decimal, target: DataType) -> Decimal:
    """Return a decimal read from text with the scale of ``target``, rounded half up.

    Raises:
        OverflowError: the rounded value has too many digits for ``target``.
    """
    step = Decimal(1).scaleb(-target.scale)
    try:
        exact = value.quantize(step, rounding=ROUND_HALF_UP, context=WIDE)
    except InvalidOperation:
        raise OverflowError from None
    if abs(exact) >= Decimal(10) ** (target.precision - target.scale):
        raise OverflowError
    return exact


def _read_integer(text: str, bits: int) -> int | None:
    text = text.strip(_CONTROL)
    if not _INTEGER.fullmatch(text):
        return None
    value = int(text)
    return value if -(1 << (bits - 1)) <= value < 1 << (bits - 1) else None


def _read_boolean(text: str) -> bool | None:
    text = text.strip(_CONTROL).lower()
    return True if text in _TRUE else False if text in _FALSE else None


def _read_decimal(text: str, target: DataType) -> Decimal | None:
    text = text.strip(_SPACE)
    return quantized(Decimal(text), target) if _DECIMAL.fullmatch(text) else None


def _special_float(text: str) -> float | None:
    word = text.lower()
    sign = -1.0 if word.startswith("-") else 1.0
    if word == "nan":
        return nan
    bare = word[1:] if word[:1] in ("+", "-") else word
    return sign * inf if bare in ("inf", "infinity") else None


def _read_float(text: str) -> float | None:
    text = text.strip(_SPACE)
    if not _FLOAT.fullmatch(text):
        return _special_float(text)
    return float(text.rstrip("dDfF"))


def _read_single(text: str) -> float | None:
    double = _read_float(text)
    if double is None or not isfinite(double):
        return double
    spelled = Fraction(text.strip(_SPACE).rstrip("dDfF"))
    bits: int = struct.unpack("<q", struct.pack("<d", double))[0]
    if bits & ((1 << 29) - 1) == 1 << 28 and spelled != Fraction(double):
        raise ValueError("a number lies too close to the middle between two floats")
    try:
        return float(struct.unpack("<f", struct.pack("<f", double))[0])
    except OverflowError:
        return inf if double > 0 else -inf


def _read_date(text: str) -> int | None:
    match = _DATE.fullmatch(text.strip(_CONTROL))
    if match is None:
        return None
    year = _year(match[1])
    try:
        day = date(year, int(match[2] or 1), int(match[3] or 1))
    except ValueError:
        return None
    return (day - date(1970, 1, 1)).days


def _read_timestamp(text: str, *, zoned: bool) -> int | None:
    text = text.strip(_CONTROL)
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        if _TIME.fullmatch(text):
            raise ValueError("a time without a date would depend on the day it is read")
        return None
    year, (month, day, hour, minute, second, fraction, zone) = _year(match[1]), match.groups()[1:]
    try:
        moment = datetime(
            year, int(month or 1), int(day or 1), int(hour or 0), int(minute or 0),
            int(second or 0), int((fraction or "")[:6].ljust(6, "0")), UTC,
        )  # fmt: skip
    except ValueError:
        return None
    shift = timedelta(0) if zone is None else _zone_offset(zone.strip())
    if shift is None:
        return None
    return (moment - _EPOCH - (shift if zoned else timedelta(0))) // timedelta(microseconds=1)


def _mark(kind: DataType, unit: int) -> str:
    """Return the separator before a unit of an interval other than its first unit."""
    return "-" if kind.kind is TypeKind.MONTHS else " " if unit == 1 else ":"


@lru_cache
def _interval_pattern(kind: DataType) -> re.Pattern[str]:
    body = r"([+-]?)(\d+)"
    for unit in range(kind.precision + 1, kind.scale + 1):
        body += rf"{_mark(kind, unit)}(\d{{1,2}})"
    body += r"(?:\.(\d{1,9}))?" if kind.units[1] == "second" else ""
    units = r"\s+TO\s+".join(dict.fromkeys(kind.units))
    return re.compile(rf"{body}|INTERVAL\s+([+-]?)'{body}'\s+{units}", re.IGNORECASE | re.ASCII)


def _read_interval(text: str, kind: DataType) -> int | None:
    match = _interval_pattern(kind).fullmatch(text.strip(_CONTROL))
    if match is None:
        return None
    groups = match.groups()
    half = len(groups) // 2
    outer, (sign, *counts) = ("", groups[:half]) if match[2] else (groups[half], groups[half + 1 :])
    sizes, total = UNIT_SIZES[kind.kind], 0
    if kind.units[1] == "second":
        total = int((counts.pop() or "")[:6].ljust(6, "0"))
    for n, count in enumerate(counts, kind.precision):
        if n > kind.precision and int(count) >= sizes[n - 1] // sizes[n]:
            return None
        total += int(count) * sizes[n]
    signed = -total if (sign == "-") != (outer == "-") else total
    if not -(1 << (INTERVAL_BITS[kind.kind] - 1)) <= signed < 1 << (INTERVAL_BITS[kind.kind] - 1):
        raise OverflowError
    return signed


def _year(text: str) -> int:
    year = int(text)
    if not 1 <= year <= 9999:
        raise ValueError("years outside 0001 to 9999 can't be read from text")
    return year


def _zone_offset(zone: str) -> timedelta | None:
    if zone in ("Z", "UTC", "GMT", "UT"):
        return timedelta(0)
    named = _NAMED_OFFSET.fullmatch(zone)
    match = _OFFSET.fullmatch(named[1] if named else zone)
    if match is None:
        if zone[0].isalpha():
            raise ValueError(f"the time zone {zone[:40]!r} is not read by name")
        return None
    sign, *parts = match.groups("0")
    hours, minutes, seconds = (int(p) for p in ([*parts[:2], "0"] if match[2] else parts[2:]))
    shift = timedelta(hours=hours, minutes=minutes, seconds=seconds)
    if shift > timedelta(hours=18) or minutes > 59 or seconds > 59:
        return None
    return -shift if sign == "-" else shift
