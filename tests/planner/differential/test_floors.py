"""Compare schedules of rations with floors, and with one ration per query, with other linear
programs.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import numpy as np
import pytest
from scipy.optimize import linprog

from anabranch_contract.plans.rations import Allocation
from anabranch_planner.allocation.fair import least_cost
from anabranch_planner.allocation.floors import NEAR, most_results_above
from anabranch_planner.allocation.forest import Forest, ForestGoal, ForestStep
from anabranch_planner.allocation.schedule import schedule
from benchmarks.papers.jaqpot.rations.random_forests import random_forest
from tests.planner.differential.test_allocations import interpolated
from tests.support.scenarios.seeds import mostly_slow

FORESTS = 300


class _Paths:
    """Linear program by paths: a goal's ration is at most the load of each step before it."""

    def __init__(self, forest: Forest, tied: frozenset[str]) -> None:
        self.forest, self.steps = forest, len(forest.steps)
        width = self.steps + len(forest.goals)
        self.rows: list[list[float]] = []
        self.limits: list[float] = []
        self.ties: list[list[float]] = []
        self.lowest = [0.0] * width
        first: dict[str, int] = {}
        for at, goal in enumerate(forest.goals):
            for last in goal.steps:
                step: int | None = last
                while step is not None:
                    row = [0.0] * width
                    row[self.steps + at], row[step] = 1.0, -1.0
                    self.add(row, 0.0)
                    step = forest.steps[step].parent
            if goal.query in tied:
                row = [0.0] * width
                row[self.steps + first.setdefault(goal.query, at)] += 1.0
                row[self.steps + at] -= 1.0
                self.ties.append(row)
        self.costs = [s.cost for s in forest.steps] + [g.cost for g in forest.goals]

    def add(self, row: list[float], limit: float) -> None:
        self.rows.append(row)
        self.limits.append(limit)

    def keep(self, floors: dict[str, float]) -> None:
        for query, floor in floors.items():
            own = [at for at, goal in enumerate(self.forest.goals) if goal.query == query]
            row = [0.0] * len(self.lowest)
            for at in own:
                row[self.steps + at] = -self.forest.goals[at].output
                if not self.forest.outputs[query] or floor == 1:
                    # Floor 1 applies to all goals of a query, even to goals without results.
                    self.lowest[self.steps + at] = floor
            self.add(row, -floor * self.forest.outputs[query])

    def least(self, prices: list[float]) -> float | None:
        """Return the minimum cost; None: there is no solution."""
        found = linprog(
            prices,
            A_ub=np.array(self.rows) if self.rows else None,
            b_ub=self.limits or None,
            A_eq=np.array(self.ties) if self.ties else None,
            b_eq=[0.0] * len(self.ties) or None,
            bounds=[(low, 1.0) for low in self.lowest],
            method="highs",
        )
        assert found.status in (0, 2), found.message
        return None if found.status else float(found.fun)

    def most(self, budget: float) -> float | None:
        """Return the maximum of results in a budget; None: the floors need more."""
        self.add(self.costs, budget)
        gains = [0.0] * self.steps + [-goal.output for goal in self.forest.goals]
        found = self.least(gains)
        return None if found is None else -found


def _floors(rng: Random, forest: Forest) -> dict[str, float]:
    return {q: rng.choice((0.2, 0.5, 0.9, 1.0)) for q in forest.outputs if rng.random() < 0.6}


def _tied(rng: Random, forest: Forest) -> frozenset[str]:
    return frozenset(q for q in forest.outputs if rng.random() < 0.3)


def _kept(forest: Forest, shares: list[float], floors: dict[str, float]) -> bool:
    found = forest.completeness(shares)
    return all(found[query] >= floor - 2e-6 for query, floor in floors.items())


def test_different_shares_cost_the_least() -> None:
    rng = Random(20)
    for _ in range(FORESTS):
        forest = random_forest(rng, paths=rng.choice((1, 3)))
        floors, tied = _floors(rng, forest), _tied(rng, forest)
        wanted = {query: floors.get(query, 0.0) for query in forest.outputs}
        shares = least_cost(forest, wanted, tied=tied)
        other = _Paths(forest, tied)
        other.keep(floors)
        assert _kept(forest, list(shares), floors)
        assert forest.used(shares) == pytest.approx(other.least(other.costs), rel=1e-5, abs=1e-5)
        for query in tied:
            own = [p for g, p in zip(forest.goals, shares, strict=True) if g.query == query]
            assert max(own) - min(own) <= 2e-6


def test_corners_are_the_most_results_above_floors() -> None:
    rng, missing = Random(21), []
    for _ in range(FORESTS):
        forest = random_forest(rng, paths=rng.choice((1, 3)))
        floors, tied = _floors(rng, forest), _tied(rng, forest)
        wanted = {query: floors.get(query, 0.0) for query in forest.outputs}
        corners = most_results_above(forest, wanted, tied=tied)
        assert corners[-1] == (1.0,) * len(forest.goals)
        for shares in corners:
            other = _Paths(forest, tied)
            other.keep(floors)
            most = other.most(forest.used(shares) + 1e-9)
            assert most is not None
            full = sum(forest.outputs.values()) or 1.0
            missing.append((most - forest.output(shares)) / full)
    assert max(missing) <= NEAR
    assert sum(missing) / len(missing) <= 1e-4


@pytest.mark.parametrize("forests", mostly_slow([60, FORESTS]))
@pytest.mark.parametrize("allocation", list(Allocation))
def test_no_floor_is_broken_where_all_are_feasible(allocation: Allocation, forests: int) -> None:
    rng, broken, near = Random(22), 0, []
    for _ in range(forests):
        forest = random_forest(rng, steps=12, goals=10)
        floors, tied = _floors(rng, forest), _tied(rng, forest)
        found = schedule(forest, allocation, {}, floors, tied=tied)
        points = found.points
        assert found.needs.keys() == floors.keys()
        assert all(a.used < b.used for a, b in pairwise(points))
        assert points[-1].shares == (1.0,) * len(forest.goals)
        for budget in (0.1, 0.3, 0.5, 0.7, 0.9, *found.needs.values()):
            if not forest.full:
                continue
            shares = interpolated(forest, points, budget)
            assert forest.used(shares) <= (budget + 2e-6) * forest.full
            other = _Paths(forest, tied)
            other.keep(floors)
            most = other.most(budget * forest.full)
            if most is None:
                # The reported need is right.
                assert max(found.needs.values()) > budget - 1e-6
                continue
            broken += not _kept(forest, shares, floors)
            if allocation is Allocation.RESULTS:
                near.append(forest.output(shares) / most if most else 1.0)
    assert broken == 0
    if near:
        assert min(near) >= 0.97
        assert sum(near) / len(near) >= 0.999


@pytest.mark.parametrize("allocation", list(Allocation))
def test_each_priority_fills_its_own_floors(allocation: Allocation) -> None:
    rng = Random(23)
    for _ in range(60):
        forest = random_forest(rng, paths=rng.choice((1, 3)))
        floors = _floors(rng, forest)
        priorities = {query: rng.choice((0, 1)) for query in forest.outputs}
        found = schedule(forest, allocation, priorities, floors)
        for query, needs in found.needs.items():
            for budget in (needs, (1 + needs) / 2):
                shares = interpolated(forest, found.points, budget)
                assert _kept(forest, shares, {query: floors[query]})


def test_floors_below_what_they_need_grow_together() -> None:
    """Two queries that share nothing: at half of the floors' need, each has half of its floor."""
    steps = (ForestStep(None, 2.0), ForestStep(None, 1.0))
    forest = Forest(
        steps, (ForestGoal("p", "a", (0,), 0.0, 10.0), ForestGoal("q", "a", (1,), 0.0, 1.0))
    )
    found = schedule(forest, Allocation.RESULTS, {}, {"p": 0.9, "q": 0.6})
    needed = (2 * 0.9 + 0.6) / 3
    assert found.needs == pytest.approx({"p": needed, "q": needed})
    shares = interpolated(forest, found.points, needed / 2)
    assert shares == pytest.approx([0.45, 0.3])


def test_one_ration_for_all_goals_of_a_query() -> None:
    """The cheap goal of a tied query must wait for the expensive one, so another query
    comes first.
    """
    steps = (ForestStep(None, 1.0), ForestStep(None, 9.0), ForestStep(None, 2.0))
    forest = Forest(
        steps,
        (
            ForestGoal("p", "a", (0,), 0.0, 10.0),
            ForestGoal("p", "b", (1,), 0.0, 10.0),
            ForestGoal("q", "a", (2,), 0.0, 10.0),
        ),
    )
    found = schedule(forest, Allocation.RESULTS, {}, tied=["p"])
    assert interpolated(forest, found.points, 2 / 12) == pytest.approx([0.0, 0.0, 1.0])
    assert interpolated(forest, found.points, 7 / 12) == pytest.approx([0.5, 0.5, 1.0])
