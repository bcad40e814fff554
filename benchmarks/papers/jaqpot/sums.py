"""Means and ranges of figures over seeds."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from benchmarks.report.figures import student


def mean(figures: Iterable[float]) -> float:
    """Return the mean; NaN without figures."""
    found = list(figures)
    return math.fsum(found) / len(found) if found else math.nan


def total(
    figures: Iterable[float], digits: int, drawn: Iterable[object] | None = None
) -> dict[str, Any] | None:
    """Return mean, least and greatest figure, number of figures, and the mean's interval; None
    without figures.

    Args:
        figures: figures of plans.
        digits: number of decimal digits.
        drawn: the plan of each figure, if plans have several figures: only plans are independent.
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
