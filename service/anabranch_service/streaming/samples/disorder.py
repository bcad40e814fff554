"""Disorder of the event times of a sample, and the lateness that covers it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta
from itertools import accumulate

_MINUTE = 60_000_000
#: Proposed values of lateness, in microseconds; greater values are multiples of the last one.
_STEPS = (10 * _MINUTE, 60 * _MINUTE, 6 * 60 * _MINUTE, 24 * 60 * _MINUTE, 7 * 24 * 60 * _MINUTE)
#: Ratio of proposed lateness to the sample's disorder, since other rows may be more disordered.
_ROOM = 2


def disorder_of(times: Sequence[datetime]) -> int | None:
    """Return the greatest delay in microseconds of an event time behind the greatest one in earlier
    rows; None without event times.

    >>> from datetime import UTC
    >>> disorder_of([datetime(2026, 1, day, tzinfo=UTC) for day in (2, 5, 3)]) // 86_400_000_000
    2
    """
    greatest = accumulate(times, max)
    behind = (top - time for top, time in zip(greatest, times, strict=True))
    longest = max(behind, default=None)
    return None if longest is None else longest // timedelta(microseconds=1)


def lateness_for(disorder: int) -> int:
    """Return a lateness in microseconds that covers twice the ``disorder``; at least ten minutes.

    >>> lateness_for(0) // _MINUTE, lateness_for(40 * _MINUTE) // _MINUTE
    (10, 360)
    """
    wanted = _ROOM * disorder
    most = _STEPS[-1]
    return next((step for step in _STEPS if step >= wanted), math.ceil(wanted / most) * most)
