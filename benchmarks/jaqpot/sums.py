"""Means and ranges over seeds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def mean(figures: Iterable[float]) -> float:
    """The mean; NaN of nothing."""
    found = list(figures)
    return math.fsum(found) / len(found) if found else math.nan


def total(figures: Iterable[float], digits: int) -> dict[str, float] | None:
    """Mean, least and greatest figure and their number, as JSON; None of nothing."""
    found = list(figures)
    if not found:
        return None
    return {
        "mean": round(mean(found), digits),
        "low": round(min(found), digits),
        "high": round(max(found), digits),
        "of": len(found),
    }
