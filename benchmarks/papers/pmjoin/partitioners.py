"""Partitioners: ways to divide the values of a key into ``D`` groups, each with a separate
placement.

*Hash*, *range* and *rate* are PMJoin's (section 3.3): by a hash of the value, by equal ranges of
values, and by k-means over the ranking of the streams by their rates of a value. *Plan* is ours: of
all choices of ``D`` plans among the values' best plans, it takes the choice that sends the fewest
tuples (an exact optimum); values with the same plan form a group.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from random import Random

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Solver
from anabranch_planner.solvers.interface import Request
from anabranch_planner.solvers.program import INFINITY, Program
from anabranch_planner.solvers.registry import solve
from benchmarks.papers.pmjoin.operators import Operator, cost
from benchmarks.papers.pmjoin.rates import Rates, RatesByValue

Groups = NDArray[np.int64]
Place = Callable[[Rates, Sequence[int]], Operator]


#: Maximum number of iterations of k-means, settled or not.
MOST_MOVES = 100


class Partitioner(StrEnum):
    """The partitioners, i.e. ways to make groups."""

    PLAN = "plan"
    HASH = "hash"
    RANGE = "range"
    RATE = "rate"


@dataclass(frozen=True, slots=True)
class Group:
    """Values of a key with the same placement.

    Attributes:
        cost: traffic of ``plan`` for these values, in units of their rates.
    """

    values: Groups
    plan: Operator
    cost: float


def by_hash(values: int, groups: int) -> Groups:
    """Return the group of each value, by a hash that is the same on every machine.

    >>> by_hash(6, 2).tolist()
    [0, 0, 1, 0, 1, 1]
    """
    numbers = np.arange(values, dtype=np.uint64)
    # The finaliser of MurmurHash3 (public domain) spreads neighbouring numbers.
    for multiplier in (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53):
        numbers = (numbers ^ (numbers >> np.uint64(33))) * np.uint64(multiplier)
    found: Groups = ((numbers ^ (numbers >> np.uint64(33))) % np.uint64(groups)).astype(np.int64)
    return found


def by_range(values: int, groups: int) -> Groups:
    """Return the group of each value, by equal ranges of values.

    >>> by_range(5, 2).tolist()
    [0, 0, 0, 1, 1]
    """
    return np.arange(values, dtype=np.int64) * groups // values


def by_rate(rates: RatesByValue, groups: int, seed: int = 0) -> Groups:
    """Return the group of each value; similar rankings of streams by rate share a group."""
    ranks = rates.arriving.argsort(axis=0, kind="stable").argsort(axis=0, kind="stable").T
    # Many values have the same ranking, so each distinct ranking is processed once, with its count.
    kinds, kind, counts = np.unique(ranks, axis=0, return_inverse=True, return_counts=True)
    kind, points = kind.reshape(-1), kinds.astype(np.float64)
    random = Random(seed)
    centres = points[kind[random.sample(range(len(ranks)), min(groups, len(ranks)))]]
    nearest = np.full(len(points), -1)
    for _ in range(MOST_MOVES):
        distances = ((points[:, None, :] - centres[None, :, :]) ** 2).sum(axis=2)
        found = distances.argmin(axis=1)
        if (found == nearest).all():
            break
        nearest = found
        for group in range(len(centres)):
            inside = nearest == group
            if inside.any():
                centres[group] = np.average(points[inside], axis=0, weights=counts[inside])
    return nearest[kind].astype(np.int64)


def grouped(
    rates: RatesByValue,
    sites: Sequence[int],
    partitioner: Partitioner,
    groups: int,
    place: Place,
) -> list[Group]:
    """Return at most ``groups`` groups by ``partitioner``, each with the plan that ``place`` makes.

    Raises:
        PlannerError: the solver failed.
    """
    if partitioner is Partitioner.PLAN:
        return placed_by_plan(rates, sites, groups, place)
    if partitioner is Partitioner.RATE:
        return placed(rates, sites, by_rate(rates, groups), place)
    make = by_hash if partitioner is Partitioner.HASH else by_range
    return placed(rates, sites, make(rates.values, groups), place)


def placed(rates: RatesByValue, sites: Sequence[int], groups: Groups, place: Place) -> list[Group]:
    """Return the nonempty groups, each with the plan that ``place`` makes for it."""
    found = []
    for group in np.unique(groups):
        values = np.flatnonzero(groups == group)
        part = rates.of(values)
        plan = place(part, sites)
        found.append(Group(values, plan, cost(plan, part)))
    return found


def placed_by_plan(
    rates: RatesByValue, sites: Sequence[int], most: int, place: Place
) -> list[Group]:
    """Return at most ``most`` groups whose plans together send the fewest tuples. Candidates are
    the values' own plans and the plans of groups by the other partitioners, so none of these sends
    fewer.

    Raises:
        PlannerError: the solver failed.
    """
    values = rates.values
    others = (by_hash(values, most), by_range(values, most), by_rate(rates, most))
    alone = np.arange(values, dtype=np.int64)
    plans = list(
        dict.fromkeys(
            group.plan for way in (alone, *others) for group in placed(rates, sites, way, place)
        )
    )
    prices = np.array([_prices(plan, rates) for plan in plans])
    chosen = list(range(len(plans))) if len(plans) <= most else _median(prices, most)
    nearest = prices[chosen].argmin(axis=0)
    found = []
    for number, plan in enumerate(plans[at] for at in chosen):
        members = np.flatnonzero(nearest == number)
        if len(members):
            part = rates.of(members)
            # A plan made for the whole group may send even fewer tuples.
            best = min((plan, place(part, sites)), key=lambda one: cost(one, part))
            found.append(Group(members, best, cost(best, part)))
    return found


def _prices(plan: Operator, rates: RatesByValue) -> NDArray[np.float64]:
    """Return the traffic of a plan for each value."""
    found = np.zeros(rates.values)
    for one in plan.inputs:
        found += _prices(one, rates)
        if one.host != plan.host:
            found += rates.each(one.streams)
    return found


def _median(prices: NDArray[np.float64], most: int) -> list[int]:
    """Choose at most ``most`` rows whose least entries per column have the least sum (p-median)."""
    program = Program()
    opened = [program.variable(0.0, integer=True) for _ in prices]
    program.row(-INFINITY, float(most), opened, [1.0] * len(opened))
    for column in prices.T:
        served = [program.variable(float(price), integer=False) for price in column]
        program.row(1.0, 1.0, served, [1.0] * len(served))
        for one, plan in zip(served, opened, strict=True):
            program.row(-INFINITY, 0.0, (one, plan), (1.0, -1.0))
    solution = solve(Solver.HIGHS, Request(program))
    if solution.values is None:
        raise PlannerError("solver-failed", f"no groups were found: {solution.message}")
    return [number for number, plan in enumerate(opened) if solution.values[plan] > 0.5]
