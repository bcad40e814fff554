"""Rations that keep the most results, from the increments of the schedule."""

from __future__ import annotations

from anabranch_planner.allocation.forest import Forest
from anabranch_planner.allocation.results import increments


def most_results(forest: Forest, budget: float) -> tuple[float, ...]:
    """Return the rations that keep the most results in ``budget`` CPU seconds per unit of time."""
    shares, left = [0.0] * len(forest.goals), budget
    for one in increments(forest):
        share = 1.0 if one.cost <= left else max(left, 0.0) / one.cost
        for goal in one.goals:
            shares[goal] = share
        left -= one.cost
        if share < 1:
            break
    return tuple(shares)
