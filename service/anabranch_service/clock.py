"""The service's clock: only this module reads the time; others get it as an argument."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeAlias

#: Aware, in UTC. Tests inject their own.
Clock: TypeAlias = Callable[[], datetime]


def utc_now() -> datetime:
    """The time, in UTC."""
    return datetime.now(UTC)
