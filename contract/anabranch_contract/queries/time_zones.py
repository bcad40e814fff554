"""Names of time zones: regions of the time zone database, and fixed offsets from UTC."""

from __future__ import annotations

import re
from functools import lru_cache
from zoneinfo import ZoneInfo, available_timezones

_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::(\d{2}))?", re.ASCII)
_UTC = frozenset({"Z", "UTC", "GMT", "UT"})


def fixed_offset(name: str) -> int | None:
    """Return the microseconds by which a zone such as ``+02:00`` is ahead of UTC; None: a region.

    >>> fixed_offset("UTC+1"), fixed_offset("Europe/Oslo")
    (3600000000, None)
    """
    if name in _UTC:
        return 0
    found = _OFFSET.fullmatch(name)
    if found is None:
        return None
    minutes = int(found[2]) * 60 + int(found[3] or 0)
    return (-1 if found[1] == "-" else 1) * minutes * 60_000_000


@lru_cache(maxsize=256)
def is_zone(name: str) -> bool:
    """Whether ``name`` is the name of a time zone: a region or a fixed offset."""
    offset = fixed_offset(name)
    if offset is not None:
        return abs(offset) <= 18 * 3_600_000_000
    try:
        ZoneInfo(name)
    except (ValueError, OSError, LookupError):
        return False
    return True


@lru_cache(maxsize=1)
def regions() -> frozenset[str]:
    """Return the names of regions of the time zone database, such as ``Europe/Oslo``."""
    return frozenset(name for name in available_timezones() if "/" in name)
