"""Durations as users write them: ``<number> <unit>`` pairs or ISO 8601, in microseconds.

>>> parse_duration("1 hour 30 minutes") == parse_duration("PT1H30M") == 5_400_000_000
True
>>> format_duration(5_400_000_000)
'1 hour 30 minutes'
"""

from __future__ import annotations

import re
from decimal import Decimal

from anabranch_contract.errors import QueryError

_UNITS = {
    "week": 604_800_000_000,
    "day": 86_400_000_000,
    "hour": 3_600_000_000,
    "minute": 60_000_000,
    "second": 1_000_000,
    "millisecond": 1_000,
    "microsecond": 1,
}
#: Abbreviations of units of time.
_SHORT = {
    "w": "week",
    "d": "day",
    "h": "hour",
    "hr": "hour",
    "m": "minute",
    "min": "minute",
    "s": "second",
    "sec": "second",
    "ms": "millisecond",
    "milli": "millisecond",
    "msec": "millisecond",
    "us": "microsecond",
    "usec": "microsecond",
    "micro": "microsecond",
}
#: Maximum duration in microseconds: sums with 64-bit event times must not overflow.
_LIMIT = 2**62
_MOST_CHARACTERS = 1000
_PAIR = re.compile(r"([+-]?\d+(?:\.\d+)?)\s*([a-z]+)(?=[\s\d+-]|$)\s*", re.IGNORECASE)
_ISO = re.compile(
    r"([+-]?)P(?:(\d+)W)?(?:(\d+)D)?"
    r"(?:(T)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d{1,6})?)S)?)?",
    re.IGNORECASE,
)
_REMEDY = "write '<number> <unit>', e.g. '10 minutes' or '10 min', or ISO 8601, e.g. 'PT10M'"


def parse_duration(text: str) -> int:
    """Parse a duration and return its microseconds; a leading minus makes them negative.

    >>> parse_duration("5 minutes"), parse_duration("P1DT0.5S"), parse_duration("-1 day")
    (300000000, 86400500000, -86400000000)
    >>> parse_duration("5min") == parse_duration("5 m") == parse_duration("0.5 min 270s")
    True

    Raises:
        QueryError: ``bad-duration``: not a duration, in a calendar unit (month, year), not a whole
            number of microseconds, or too long.
    """
    stripped = text.strip()
    if len(stripped) > _MOST_CHARACTERS:
        raise QueryError(
            "bad-duration", f"a duration of {len(stripped)} characters is too long", remedy=_REMEDY
        )
    total = _parse_iso(stripped) if re.match(r"[+-]?P", stripped, re.I) else _parse_pairs(stripped)
    if abs(total) > _LIMIT:
        raise QueryError(
            "bad-duration",
            f"duration {text!r} is too long",
            remedy="leave the duration out for no bound",
        )
    return total


def format_duration(micros: int) -> str:
    """Return ``micros`` as a text that :func:`parse_duration` can read, largest unit first.

    >>> format_duration(0), format_duration(-1_500_000)
    ('0 seconds', '-1 second -500 milliseconds')
    """
    if micros == 0:
        return "0 seconds"
    sign, rest, parts = ("-" if micros < 0 else ""), abs(micros), []
    for unit, size in _UNITS.items():
        count, rest = divmod(rest, size)
        if count:
            parts.append(f"{sign}{count} {unit}{'' if count == 1 else 's'}")
    return " ".join(parts)


def unit_micros(unit: str) -> int | None:
    """Return the microseconds of ``unit`` (singular or plural, any case); None if they vary."""
    name = unit.lower()
    return _UNITS.get(name) or _UNITS.get(name.removesuffix("s"))


def _parse_pairs(text: str) -> int:
    total, position = 0, 0
    while position < len(text):
        match = _PAIR.match(text, position)
        if match is None:
            raise QueryError("bad-duration", f"{text!r} is not a duration", remedy=_REMEDY)
        name = match.group(2).lower()
        size = unit_micros(_SHORT.get(name) or _SHORT.get(name.removesuffix("s")) or name)
        if size is None:
            raise QueryError(
                "bad-duration",
                f"{match.group(2)!r} in {text!r} is not a unit of fixed length",
                remedy="use " + ", ".join(_UNITS),
            )
        exact = Decimal(match.group(1)) * size
        if exact != int(exact):
            raise QueryError(
                "bad-duration",
                f"{match.group(0).strip()!r} is not a whole number of microseconds",
                remedy="give fewer digits after the point",
            )
        total += int(exact)
        position = match.end()
    if not text:
        raise QueryError("bad-duration", "the duration is empty", remedy=_REMEDY)
    return total


def _parse_iso(text: str) -> int:
    match = _ISO.fullmatch(text)
    if match is None or not any(match.group(i) for i in (2, 3, 5, 6, 7)):
        calendar = re.fullmatch(r"[+-]?P[^T]*\d[YM].*", text, re.IGNORECASE)
        raise QueryError(
            "bad-duration",
            f"{text!r} has years or months, which have no fixed length"
            if calendar
            else f"{text!r} is not an ISO 8601 duration",
            remedy="use weeks, days or shorter units, e.g. 'P30D'" if calendar else _REMEDY,
        )
    sign, weeks, days, marker, hours, minutes, seconds = match.groups()
    if marker and not (hours or minutes or seconds):
        raise QueryError(
            "bad-duration", f"{text!r} ends after its T", remedy="add hours, minutes or seconds"
        )
    total = (
        int(weeks or 0) * _UNITS["week"]
        + int(days or 0) * _UNITS["day"]
        + int(hours or 0) * _UNITS["hour"]
        + int(minutes or 0) * _UNITS["minute"]
        + int(Decimal(seconds or 0) * _UNITS["second"])
    )
    return -total if sign == "-" else total
