"""Tests of the allocation ``jaqpot``: GrePP after the cover; where it equals ``results`` and where
not.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from anabranch_contract.plans.rations import Allocation, shares_at
from anabranch_planner.allocation.fair import least_cost
from anabranch_planner.allocation.forest import Forest, ForestGoal, ForestStep
from anabranch_planner.allocation.jaqpot import by_productivity, input_paths
from anabranch_planner.allocation.schedule import schedule
from benchmarks.papers.jaqpot.printed.grepp import grepp
from benchmarks.papers.jaqpot.printed.paths import input_paths as printed_paths
from benchmarks.papers.jaqpot.printed.paths import saturation, throughput
from benchmarks.papers.jaqpot.rations.random_forests import random_forest
from tests.benchmarks.papers.jaqpot.printed.plans import SHAPES, random_plan
from tests.benchmarks.papers.jaqpot.test_results_as_grepp import apart, forest_of_paths
from tests.support.oracles.most_results import most_results

FORESTS = 1_000

#: Two paths of ``p`` share a step of cost 10; each alone has 12 results at cost 11. The path of
#: ``q`` has 8 at cost 5.
SHARED = Forest(
    (ForestStep(None, 10.0), ForestStep(0, 1.0), ForestStep(0, 1.0), ForestStep(None, 5.0)),
    (
        ForestGoal("p", "a", (1,), 0.0, 12.0),
        ForestGoal("p", "b", (2,), 0.0, 12.0),
        ForestGoal("q", "a", (3,), 0.0, 8.0),
    ),
)


def at(forest: Forest, allocation: Allocation, budget: float, **terms: object) -> list[float]:
    """Return the rations of a schedule at ``budget``, a share of the total cost."""
    points = schedule(forest, allocation, {}, **terms).points  # type: ignore[arg-type]
    return list(shares_at(points, budget))


def test_without_shared_steps_it_keeps_as_much_as_results() -> None:
    rng, rationed = Random(31), 0
    for _ in range(FORESTS):
        forest = apart(rng)
        if not forest.full:
            continue
        points = schedule(forest, Allocation.JAQPOT, {}).points
        for budget in (rng.random(), rng.random()):
            shares = shares_at(points, budget)
            assert forest.used(shares) <= budget * forest.full * (1 + 1e-9) + 1e-9
            most = forest.output(most_results(forest, budget * forest.full))
            assert forest.output(shares) == pytest.approx(most, rel=1e-6, abs=1e-9)
            rationed += any(0 < share < 1 for share in shares)
    assert rationed > FORESTS


def test_binary_plans_are_rationed_as_printed_after_any_cover() -> None:
    rng, covered = Random(32), 0
    for number in range(FORESTS):
        plan = random_plan(rng, rng.randint(2, 8), SHAPES[number % len(SHAPES)])
        paths = printed_paths(plan)
        forest = forest_of_paths(paths)
        cover = [rng.choice((0.0, 0.0, rng.random())) for _ in paths]
        used = {path.name: share * path.most for path, share in zip(paths, cover, strict=True)}
        left = rng.random() * (saturation(paths)[0] - sum(used.values()))
        rest = grepp(paths, left, used)
        wanted = throughput(paths, {name: used[name] + rest[name] for name in used})
        budget, before = forest.used(cover) + left, tuple(cover)
        for after in by_productivity(forest, ["q"], cover):
            if forest.used(after) >= budget:
                break
            before = after
        room = forest.used(after) - forest.used(before)
        part = (budget - forest.used(before)) / room if room else 0.0
        shares = [a + part * (b - a) for a, b in zip(before, after, strict=True)]
        assert forest.output(shares) == pytest.approx(wanted, rel=1e-6)
        covered += any(cover)
    assert covered > FORESTS / 2


def test_it_never_keeps_more_than_results_and_less_where_paths_share_steps() -> None:
    rng, less = Random(33), 0
    for _ in range(FORESTS):
        forest, budget = random_forest(rng, steps=10, goals=8), rng.random()
        shares = at(forest, Allocation.JAQPOT, budget)
        most = forest.output(most_results(forest, budget * forest.full))
        assert forest.used(shares) <= budget * forest.full + 1e-9
        assert forest.output(shares) <= most * (1 + 1e-9) + 1e-9
        less += forest.output(shares) < 0.99 * most
    assert less > FORESTS / 10


def test_a_shared_step_is_in_the_price_of_each_of_its_paths() -> None:
    assert input_paths(SHARED, ["p", "q"]) == [(2,), (0,), (1,)]
    # All of `q`, and seven of eleven cost units of `a`.
    shares = at(SHARED, Allocation.JAQPOT, 12 / 17)
    assert shares == pytest.approx([7 / 11, 0.0, 1.0])
    # When `a` has paid the shared step, `b` costs one more.
    assert at(SHARED, Allocation.JAQPOT, 16.5 / 17) == pytest.approx([1.0, 0.5, 1.0])
    assert at(SHARED, Allocation.RESULTS, 12 / 17) == pytest.approx([1.0, 1.0, 0.0])


def test_paths_are_sorted_by_results_per_second_of_all_their_steps() -> None:
    rng = Random(34)
    for _ in range(FORESTS):
        forest = random_forest(rng, paths=rng.choice((1, 3)))
        tied = frozenset(q for q in forest.outputs if rng.random() < 0.3)
        queries = [q for q in sorted(forest.outputs) if rng.random() < 0.7]
        found = input_paths(forest, queries, tied)
        own = [n for n, goal in enumerate(forest.goals) if goal.query in queries]
        assert sorted(n for path in found for n in path) == own
        ratios = []
        for path in found:
            names = {forest.goals[n].query for n in path}
            assert len(path) == 1 or (len(names) == 1 and names <= tied)
            steps: set[int] = set()
            for n in path:
                for last in forest.goals[n].steps:
                    step: int | None = last
                    while step is not None:
                        steps.add(step)
                        step = forest.steps[step].parent
            cost = sum(forest.steps[n].cost for n in steps)
            cost += sum(forest.goals[n].cost for n in path)
            ratios.append(sum(forest.goals[n].output for n in path) / cost if cost else 1e300)
        assert all(a >= b * (1 - 1e-9) for a, b in pairwise(ratios))


def test_the_cover_is_the_cheapest_and_stays() -> None:
    rng, costly = Random(35), 0
    for _ in range(200):
        forest = random_forest(rng, steps=10, goals=8)
        floors = {q: rng.choice((0.2, 0.5, 0.9)) for q in forest.outputs if rng.random() < 0.7}
        least = {q: floors.get(q, 0.0) for q in forest.outputs}
        cover = least_cost(forest, least)
        found = schedule(forest, Allocation.JAQPOT, {}, floors)
        unit = forest.full or 1.0
        for needs in found.needs.values():
            assert needs == pytest.approx(min(forest.used(cover) / unit, 1.0), abs=1e-6)
            costly += 0 < needs < 1
            for budget in (needs, (needs + 1) / 2, 1.0):
                shares = shares_at(found.points, budget)
                # GrePP never lowers the cover's rations.
                assert all(s >= c - 1e-6 for s, c in zip(shares, cover, strict=True))
                kept = forest.completeness(shares)
                assert all(kept[query] >= floor - 1e-6 for query, floor in floors.items())
    assert costly > 100


def test_the_cover_is_chosen_before_the_throughput() -> None:
    """The cheapest cover of ``p`` is ``a``, though its ``b`` costs nothing when ``r`` has
    the step.
    """
    forest = Forest(
        (ForestStep(None, 2.0), ForestStep(None, 3.0)),
        (
            ForestGoal("p", "a", (0,), 0.0, 1.0),
            ForestGoal("p", "b", (1,), 0.0, 1.0),
            ForestGoal("r", "a", (1,), 0.0, 100.0),
        ),
    )
    first = at(forest, Allocation.JAQPOT, 3 / 5, floors={"p": 0.5})
    assert first == pytest.approx([1.0, 1 / 3, 1 / 3])
    together = at(forest, Allocation.RESULTS, 3 / 5, floors={"p": 0.5})
    assert forest.output(together) == pytest.approx(101.0)


def test_goals_with_one_ration_are_one_path() -> None:
    """The cheap goal of a tied query waits for the expensive one: 20 results at 10 against 10
    at 2.
    """
    steps = (ForestStep(None, 1.0), ForestStep(None, 9.0), ForestStep(None, 2.0))
    goals = (
        ForestGoal("p", "a", (0,), 0.0, 10.0),
        ForestGoal("p", "b", (1,), 0.0, 10.0),
        ForestGoal("q", "a", (2,), 0.0, 10.0),
    )
    forest = Forest(steps, goals)
    assert at(forest, Allocation.JAQPOT, 7 / 12, tied=["p"]) == pytest.approx([0.5, 0.5, 1.0])
    assert at(forest, Allocation.JAQPOT, 7 / 12) == pytest.approx([1.0, 4 / 9, 1.0])


def test_a_higher_priority_has_everything_first() -> None:
    found = schedule(SHARED, Allocation.JAQPOT, {"p": 1})
    assert shares_at(found.points, 12 / 17) == pytest.approx((1.0, 1.0, 0.0))


def test_no_solver_is_needed_without_floors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("anabranch_planner.allocation.fair.solve", None)
    found = schedule(SHARED, Allocation.JAQPOT, {}, tied=["p"])
    assert found.points[-1].shares == (1.0, 1.0, 1.0)
    assert found.needs == {}
