"""Means and ranges over seeds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from benchmarks.report.figures import student


def mean(figures: Iterable[float]) -> float:
    """The mean; NaN of nothing."""
    found = list(figures)
    return math.fsum(found) / len(found) if found else math.nan


def total(
    figures: Iterable[float], digits: int, drawn: Iterable[object] | None = None
) -> dict[str, Any] | None:
    """Mean, least and greatest figure, their number and the mean's interval; None of nothing.

    Args:
        figures: over plans.
        digits: to round to.
        drawn: the plan of each figure, where plans have several: only plans are independent.
    """
    found = list(figures)
    if not found:
        return None
    by_plan: dict[object, list[float]] = defaultdict(list)
    for plan, figure in zip(range(len(found)) if drawn is None else drawn, found, strict=True):
        by_plan[plan].append(figure)
    means = [mean(some) for some in by_plan.values()]
    interval = student(means) if len(means) > 1 else (min(found), max(found))
    return {
        "mean": round(mean(found), digits),
        "low": round(min(found), digits),
        "high": round(max(found), digits),
        "of": len(found),
        "interval": [round(end, digits) for end in interval],
    }
