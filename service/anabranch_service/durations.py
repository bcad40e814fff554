"""Durations at the border: text in, ISO 8601 text out, within what 64-bit microseconds hold."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

from anabranch_contract.errors import PlannerError
from anabranch_planner.sql.durations import parse_duration
from anabranch_service.errors import InvalidInput

#: A hundred thousand years: more than any datetime spans, far less than 64 bits hold.
LONGEST = 100_000 * 366 * 86_400 * 1_000_000


def read_duration(text: str, field: str) -> int:
    """Microseconds of a duration text; the complaint, if any, names ``field``."""
    try:
        micros = parse_duration(text)
    except PlannerError as cause:
        raise InvalidInput(
            cause.code,
            cause.message,
            field=field,
            remedy=cause.remedy or "write <int> <unit>, such as 10 minutes, or ISO 8601",
        ) from None
    if not 0 <= micros <= LONGEST:
        raise InvalidInput(
            "bad-duration",
            f"{text!r} is out of range",
            field=field,
            remedy="give a duration between 0 and 100,000 years, or leave it out for no bound",
        )
    return micros


def iso_time(micros: int | None) -> str | None:
    """ISO 8601 text, in UTC with Z, of microseconds since 1970; None stays None.

    >>> iso_time(0)
    '1970-01-01T00:00:00Z'
    """
    if micros is None:
        return None
    try:
        moment = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)
    except OverflowError:
        return None
    return moment.isoformat().replace("+00:00", "Z")
