"""Load-shedding schedule: rations (admitted fractions of tuples) for every CPU budget.

Priorities are strict: a query gets CPU time only when all queries of higher priority are complete.
Within a priority, floors come first: the completeness of all queries grows in proportion until each
has reached its floor. Then the allocation decides (``results``, ``fair``, ``jaqpot``); no query
falls below its floor again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from itertools import groupby
from typing import NamedTuple

from anabranch_contract.plans.rations import Allocation, SchedulePoint
from anabranch_planner.allocation.fair import least_cost
from anabranch_planner.allocation.floors import most_results_above
from anabranch_planner.allocation.forest import Forest
from anabranch_planner.allocation.jaqpot import by_productivity
from anabranch_planner.allocation.results import increments

Shares = tuple[float, ...]


#: Number of points above which a schedule is thinned out, and the minimum distance of points in a
#: thinned schedule, as a fraction of the full cost.
MOST, GRAIN = 64, 1 / 64
#: Two CPU times count as equal if they differ by less than this fraction of the full cost.
FREE = 1e-9
#: Completeness of all queries at the points of ``fair``; denser near 1, where cost grows fastest.
GRID = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 1.0)
#: Fractions of every floor (minimum completeness) at the points of a schedule below the floors.
FILLED = (0.25, 0.5, 0.75, 1.0)


class Schedule(NamedTuple):
    """Points (CPU time, best rations) by ascending CPU time; the runtime interpolates between them.

    Attributes:
        needs: query with a floor -> least fraction of the full CPU time that satisfies the floor.
    """

    points: tuple[SchedulePoint, ...]
    needs: Mapping[str, float]


def schedule(
    forest: Forest,
    allocation: Allocation,
    priorities: Mapping[str, int],
    floors: Mapping[str, float] | None = None,
    *,
    tied: Collection[str] = (),
) -> Schedule:
    """The best rations (fraction of each goal's tuples to process) for every CPU budget.

    Args:
        priorities: query -> its priority, by default 0; greater is more important.
        floors: query -> minimum fraction of its results, in (0, 1]; others have none.
        tied: queries whose goals all have the same ration.

    Raises:
        PlannerError: the solver fails (``no-solution``). Without floors ``jaqpot`` needs no solver;
            neither does ``results`` if also no queries are tied and each goal has one path.
    """
    wanted = floors or {}
    shares: Shares = (0.0,) * len(forest.goals)
    found, held = [shares], {}
    ordered = sorted(forest.outputs, key=lambda query: -priorities.get(query, 0))
    for _, group in groupby(ordered, key=lambda query: priorities.get(query, 0)):
        least = {query: wanted.get(query, 0.0) for query in group}
        group_tied = [query for query in least if query in tied]
        if any(least.values()):
            found += _filled(forest, shares, least, group_tied)
            held[len(found) - 1] = [query for query, floor in least.items() if floor]
        if allocation is Allocation.FAIR:
            found += _fair(forest, shares, least, group_tied)
        elif allocation is Allocation.JAQPOT:
            # Skip rations that exactly satisfy the floors: `_filled` has appended them to `found`.
            found += by_productivity(forest, least, found[-1], tied=group_tied)
        elif any(least.values()) or group_tied or not forest.is_tree:
            found += most_results_above(forest, least, shares, tied=group_tied)
        else:
            found += _rations_for_results(forest, shares, frozenset(least))
        shares = found[-1]
    unit = forest.full or 1.0
    needs = {q: min(forest.used(found[at]) / unit, 1.0) for at in held for q in held[at]}
    return Schedule(_points(forest, found, frozenset(held)), needs)


def _filled(
    forest: Forest, paid: Shares, floors: Mapping[str, float], tied: Collection[str]
) -> Iterator[Shares]:
    """Rations below the floors: the cheapest ones for growing fractions of all floors."""
    for part in FILLED:
        shares = {query: part * floor for query, floor in floors.items()}
        yield least_cost(forest, shares, paid, tied=tied)


def _rations_for_results(forest: Forest, paid: Shares, queries: frozenset[str]) -> Iterator[Shares]:
    """Rations of the allocation ``results``: after each further increment."""
    shares = list(paid)
    goals = [at for at, goal in enumerate(forest.goals) if goal.query in queries]
    for one in increments(forest, goals, paid):
        for at in one.goals:
            shares[at] = 1.0
        yield tuple(shares)


def _fair(
    forest: Forest, paid: Shares, floors: Mapping[str, float], tied: Collection[str]
) -> Iterator[Shares]:
    """Rations of the allocation ``fair``: the cheapest ones for growing completeness."""
    for share in GRID:
        if share > min(floors.values()):
            shares = {query: max(share, floor) for query, floor in floors.items()}
            yield least_cost(forest, shares, paid, tied=tied)


def _points(
    forest: Forest, found: list[Shares], kept: Collection[int]
) -> tuple[SchedulePoint, ...]:
    """Schedule points for the rations ``found``, by ascending CPU time, without near neighbours.

    Args:
        kept: indices of points to keep even near others, because constraints change there.
    """
    unit, apart = forest.full, GRAIN if len(found) > MOST else FREE
    if unit <= 0:
        return (SchedulePoint(1.0, found[-1]),)
    points = [SchedulePoint(0.0, found[0])]
    for at, shares in enumerate(found[1:-1], 1):
        used, between = forest.used(shares) / unit, FREE if at in kept else apart
        if used <= points[-1].used + FREE:
            points[-1] = SchedulePoint(points[-1].used, shares)
        elif points[-1].used + between <= used <= 1 - between:
            points.append(SchedulePoint(used, shares))
    return (*points, SchedulePoint(1.0, found[-1]))
