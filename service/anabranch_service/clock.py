"""The service's clock: only this module reads the time; others get it as an argument."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

#: Function that returns the present time, timezone-aware in UTC; tests inject another one.
Clock: TypeAlias = Callable[[], datetime]


def utc_now() -> datetime:
    """Return the present time, in UTC."""
    return datetime.now(UTC)


def in_utc(moment: datetime) -> datetime:
    """Return ``moment`` in UTC; a time without a zone is taken as UTC, as the runtime does."""
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
