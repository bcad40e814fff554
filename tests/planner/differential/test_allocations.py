"""Compare allocations of rations to random forests with brute force, linear programs and
the paper.
"""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import numpy as np
import pytest
from scipy.optimize import linprog

from anabranch_contract.plans.rations import Allocation, Ranking, RationedGoal, RationSchedule
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_planner.allocation.fair import least_cost
from anabranch_planner.allocation.forest import Forest, ForestGoal, ForestStep
from anabranch_planner.allocation.results import increments
from anabranch_planner.allocation.schedule import GRID, schedule
from benchmarks.papers.jaqpot.rations.random_forests import random_forest
from tests.support.oracles.most_results import most_results

FORESTS = 1_000


def _rows(forest: Forest) -> tuple[list[list[float]], int]:
    """Return constraints ``a · x <= 0`` over loads of steps and rations of goals: a step's load is
    the maximum of the rations behind it.
    """
    steps, width = len(forest.steps), len(forest.steps) + len(forest.goals)
    rows = []
    for at, step in enumerate(forest.steps):
        if step.parent is not None:
            row = [0.0] * width
            row[at], row[step.parent] = 1.0, -1.0
            rows.append(row)
    for at, goal in enumerate(forest.goals):
        for last in goal.steps:
            row = [0.0] * width
            row[steps + at], row[last] = 1.0, -1.0
            rows.append(row)
    return rows, steps


def _costs(forest: Forest) -> list[float]:
    return [s.cost for s in forest.steps] + [g.cost for g in forest.goals]


def _optimum(forest: Forest, budget: float) -> float:
    """Return the maximum of results within a budget, by a linear program."""
    rows, steps = _rows(forest)
    gains = [0.0] * steps + [-g.output for g in forest.goals]
    rows.append(_costs(forest))
    limits = [0.0] * (len(rows) - 1) + [budget]
    found = linprog(gains, A_ub=np.array(rows), b_ub=limits, bounds=(0, 1), method="highs")
    assert found.status == 0, found.message
    return float(-found.fun)


def _fairest(forest: Forest, share: float) -> float:
    """Return the minimum cost of giving each query a share of its results, by a linear program."""
    rows, steps = _rows(forest)
    limits = [0.0] * len(rows)
    lowest = [0.0] * (steps + len(forest.goals))
    for query, full in forest.outputs.items():
        own = [at for at, goal in enumerate(forest.goals) if goal.query == query]
        if full:
            row = [0.0] * len(lowest)
            for at in own:
                row[steps + at] = -forest.goals[at].output
            rows.append(row)
            limits.append(-share * full)
        else:
            for at in own:
                lowest[steps + at] = share
    bounds = [(low, 1.0) for low in lowest]
    found = linprog(
        _costs(forest), A_ub=np.array(rows) if rows else None, b_ub=limits or None, bounds=bounds
    )
    assert found.status == 0, found.message
    return float(found.fun)


def test_most_results_is_the_optimum() -> None:
    rng = Random(7)
    for _ in range(FORESTS):
        forest = random_forest(rng)
        budget = rng.random() * 1.1 * forest.full
        shares = most_results(forest, budget)
        assert forest.used(shares) <= budget + 1e-9
        assert forest.output(shares) == pytest.approx(_optimum(forest, budget), rel=1e-7, abs=1e-7)


def test_increments_are_the_best_sets_of_goals() -> None:
    rng = Random(8)
    for _ in range(FORESTS):
        forest = random_forest(rng, steps=6, goals=5)
        found = increments(forest)
        assert sorted(at for one in found for at in one.goals) == list(range(len(forest.goals)))
        sets = [
            (forest.used(shares), forest.output(shares))
            for shares in product((0.0, 1.0), repeat=len(forest.goals))
        ]
        shares = [0.0] * len(forest.goals)
        for one, following in zip(found, [*found[1:], None], strict=True):
            for at in one.goals:
                shares[at] = 1.0
            if following is not None and not following.cost:
                continue
            used, output = forest.used(shares), forest.output(shares)
            # No set of goals has more results at no higher cost.
            assert all(o <= output + 1e-9 for u, o in sets if u <= used + 1e-12)
        ratios = [one.output / one.cost for one in found if one.cost > 1e-12]
        assert all(a >= b - 1e-9 for a, b in pairwise(ratios))


def test_fair_rations_cost_the_least() -> None:
    rng = Random(9)
    for _ in range(FORESTS // 4):
        forest, share = random_forest(rng), rng.choice(GRID[:-1])
        shares = least_cost(forest, dict.fromkeys(forest.outputs, share))
        assert min(forest.completeness(shares).values()) >= share - 1e-6
        assert forest.used(shares) == pytest.approx(_fairest(forest, share), rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("allocation", list(Allocation))
def test_schedules_stay_within_every_budget(allocation: Allocation) -> None:
    rng = Random(10)
    for _ in range(60):
        forest = random_forest(rng, steps=12, goals=10)
        priorities = {q: rng.choice((0, 0, 1)) for q in forest.outputs}
        points = schedule(forest, allocation, priorities).points
        assert points[-1].shares == (1.0,) * len(forest.goals)
        assert points[-1].used == 1.0
        assert all(a.used < b.used for a, b in pairwise(points))
        for budget in (0.0, 0.13, 0.5, 0.77, 1.0):
            shares = interpolated(forest, points, budget)
            assert forest.used(shares) <= budget * forest.full + 1e-6
            least = forest.completeness(shares)
            urgent = [least[q] for q in least if priorities[q]]
            late = [forest.completeness(shares)[q] for q in least if not priorities[q]]
            costly = [q for q in least if _cost_of(forest, q) > 0]
            if any(priorities[q] and least[q] < 0.98 for q in costly) and urgent:
                # Lower priorities get only rations that cost (almost) nothing more.
                shown = [
                    0.0 if priorities[g.query] == 0 else p
                    for g, p in zip(forest.goals, shares, strict=True)
                ]
                assert forest.used(shares) - forest.used(shown) <= 0.06 * forest.full, late


def _cost_of(forest: Forest, query: str) -> float:
    return forest.used([float(g.query == query) for g in forest.goals])


def interpolated(forest: Forest, points: tuple[object, ...], budget: float) -> list[float]:
    goals = tuple(
        RationedGoal(QueryId(g.query), Label(f"{at}"), Ranking((("k", "bigint"),), by_batch=True))
        for at, g in enumerate(forest.goals)
    )
    given = RationSchedule(0, 0, goals, points)  # type: ignore[arg-type]
    rations = {int(r.start): r.share for r in given.rations(budget)}
    return [rations.get(at, 1.0) for at in range(len(goals))]


def test_fair_schedules_are_near_the_fairest() -> None:
    rng = Random(11)
    for _ in range(60):
        forest = random_forest(rng)
        points = schedule(forest, Allocation.FAIR, {}).points
        for share in (0.25, 0.55, 0.9):
            budget = _fairest(forest, share) / forest.full if forest.full else 1.0
            found = forest.completeness(interpolated(forest, points, budget))
            assert min(found.values()) >= share - 0.06


def test_paths_that_share_nothing_go_by_productivity() -> None:
    """GrePP orders paths by (JAQPOT, Eq. 8): results over probes of the whole path."""
    steps: list[ForestStep] = []
    goals: list[ForestGoal] = []
    for query, fanouts in enumerate(((2.0, 3.0), (5.0, 1.0), (0.5, 40.0))):
        first = len(steps)
        steps += [ForestStep(None, 1.0), ForestStep(first, fanouts[0])]
        goals.append(ForestGoal("q", f"r{query}", (first + 1,), 0.0, fanouts[0] * fanouts[1]))
    found = increments(Forest(tuple(steps), tuple(goals)))
    productivity = [6 / 3, 5 / 6, 20 / 1.5]
    assert [one.goals[0] for one in found] == [2, 0, 1]
    assert [one.output / one.cost for one in found] == pytest.approx(
        sorted(productivity, reverse=True)
    )
