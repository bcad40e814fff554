"""Parsing of durations in requests, such as ``10 minutes``, into microseconds."""

from __future__ import annotations

from anabranch_contract.durations import parse_duration
from anabranch_contract.errors import PlannerError
from anabranch_service.errors import InvalidInput

#: Greatest duration in microseconds: 100,000 years, which 64 bits hold with room for sums.
LONGEST = 100_000 * 366 * 86_400 * 1_000_000


def read_duration(text: str, field: str) -> int:
    """Parse a duration into microseconds; :class:`InvalidInput` names the request's ``field``."""
    try:
        micros = parse_duration(text)
    except PlannerError as cause:
        raise InvalidInput(
            cause.code,
            cause.message,
            field=field,
            remedy=cause.remedy or "write <number> <unit>, such as 10 minutes, or ISO 8601",
        ) from None
    if not 0 <= micros <= LONGEST:
        raise InvalidInput(
            "bad-duration",
            f"{text!r} is out of range",
            field=field,
            remedy="give a duration between 0 and 100,000 years, or leave it out for no bound",
        )
    return micros


def read_positive(text: str, field: str, code: str, message: str, remedy: str) -> int:
    """Parse a duration above 0, as :func:`read_duration`; other arguments describe the error."""
    micros = read_duration(text, field)
    if micros == 0:
        raise InvalidInput(code, message, field=field, remedy=remedy)
    return micros
