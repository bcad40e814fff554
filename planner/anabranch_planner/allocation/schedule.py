"""Rations for every budget: the points between which the runtime interpolates.

Priorities are strict: a query gets something only when all of higher priority have everything.
Within a priority the allocation decides (``results``, ``fair``).
"""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

from anabranch_contract.plans.rations import Allocation, SchedulePoint
from anabranch_planner.allocation.fair import least_cost
from anabranch_planner.allocation.results import increments

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from anabranch_planner.allocation.forest import Forest

    Shares = tuple[float, ...]

#: Points up to which all are kept. Of more, they are this far apart, in shares of all cost.
MOST, GRAIN = 64, 1 / 64
#: A share that costs nothing.
FREE = 1e-9
#: Shares of results for which the least cost is found; the last ones cost most.
GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)


def schedule(
    forest: Forest, allocation: Allocation, priorities: Mapping[str, int]
) -> tuple[SchedulePoint, ...]:
    """The best rations by growing use of CPU time, from none to all.

    Args:
        priorities: query -> greater is more important; 0 where it has none.

    Raises:
        PlannerError: the solver breaks (``no-solution``); not with ``results``.
    """
    shares: Shares = (0.0,) * len(forest.goals)
    found = [shares]
    ordered = sorted(forest.outputs, key=lambda query: -priorities.get(query, 0))
    for _, group in groupby(ordered, key=lambda query: priorities.get(query, 0)):
        queries = frozenset(group)
        if allocation is Allocation.RESULTS:
            found += _results(forest, shares, queries)
        else:
            found += _fair(forest, shares, queries)
        shares = found[-1]
    return _points(forest, found)


def _results(forest: Forest, paid: Shares, queries: frozenset[str]) -> Iterator[Shares]:
    shares = list(paid)
    goals = [at for at, goal in enumerate(forest.goals) if goal.query in queries]
    for one in increments(forest, goals, paid):
        for at in one.goals:
            shares[at] = 1.0
        yield tuple(shares)


def _fair(forest: Forest, paid: Shares, queries: frozenset[str]) -> Iterator[Shares]:
    for share in GRID:
        yield least_cost(forest, share, queries, paid)


def _points(forest: Forest, found: list[Shares]) -> tuple[SchedulePoint, ...]:
    """``found`` by what they use; of many without what lies between points near each other."""
    unit, apart = forest.full, GRAIN if len(found) > MOST else FREE
    if unit <= 0:
        return (SchedulePoint(1.0, found[-1]),)
    points = [SchedulePoint(0.0, found[0])]
    for shares in found[1:-1]:
        used = forest.used(shares) / unit
        if used <= points[-1].used + FREE:
            points[-1] = SchedulePoint(points[-1].used, shares)
        elif points[-1].used + apart <= used <= 1 - apart:
            points.append(SchedulePoint(used, shares))
    return (*points, SchedulePoint(1.0, found[-1]))
