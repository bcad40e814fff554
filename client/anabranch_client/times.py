"""Readable moments and durations for tables; JSON output has exact ones.

>>> now = datetime(2026, 11, 24, 7, 26, 10, tzinfo=UTC)
>>> moment("2026-11-24T07:22:56.123Z", now), moment("2026-11-24T09:30:00Z", now)
('2026-11-24 07:22:56Z (3 min ago)', '2026-11-24 09:30:00Z (in 2 h)')
"""

from __future__ import annotations

from datetime import UTC, datetime

#: Seconds per unit. A unit is used from two of it up, to keep the rounding error small.
_UNITS = ((86_400, "days"), (3_600, "h"), (60, "min"))


def moment(text: str | None, now: datetime | None = None) -> str:
    """A moment in UTC, to the second, and its distance from ``now``; a dash for None.

    Texts other than a moment with a time zone are returned unchanged.

    >>> moment(None), moment("2 days from now on")
    ('–', '2 days from now on')
    """
    if not text:
        return "–"
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        return text
    if at.tzinfo is None:
        return text
    seconds = ((now or datetime.now(UTC)) - at).total_seconds()
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M:%S}Z ({away(seconds)})"


def away(seconds: float) -> str:
    """Time since a moment in the past, as text; with negative ``seconds``, time until a future one.

    >>> away(0.4), away(200), away(-7200), away(3 * 86_400)
    ('just now', '3 min ago', 'in 2 h', '3 days ago')
    """
    if abs(seconds) < 1:
        return "just now"
    return f"{brief(seconds)} ago" if seconds > 0 else f"in {brief(-seconds)}"


def brief(seconds: float) -> str:
    """A duration, rounded to one unit.

    >>> brief(0), brief(1.6), brief(119), brief(150), brief(7200), brief(180_000)
    ('0 s', '2 s', '119 s', '2 min', '2 h', '2 days')
    """
    whole = round(seconds)
    for size, unit in _UNITS:
        if whole >= 2 * size:
            return f"{whole / size:.0f} {unit}"
    return f"{whole} s"


def took(seconds: float) -> str:
    """A measured duration: to a hundredth of a second, or in two units if long.

    >>> took(3.456), took(123.4), took(7325)
    ('3.46 s', '2 min 3 s', '2 h 2 min')
    """
    whole = round(seconds)
    if seconds < 60:
        return f"{seconds:.2f} s"
    if whole < 3_600:
        return f"{whole // 60} min {whole % 60} s"
    return f"{whole // 3_600} h {whole % 3_600 // 60} min"
