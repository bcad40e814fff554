"""Compare policies that allocate one budget to the probe paths of queries."""

from __future__ import annotations

from random import Random

import pytest

from anabranch_contract.errors import PlannerError
from anabranch_planner.allocation.forest import Forest, ForestGoal, ForestStep
from benchmarks.papers.jaqpot.allocate.policies import Policy, allocate
from benchmarks.papers.jaqpot.rations.random_forests import random_forest


def test_no_policy_beats_exact_or_fair_at_its_own_aim() -> None:
    rng, ahead = Random(3), 0
    for _ in range(150):
        forest, capacity = random_forest(rng), rng.uniform(0.05, 1.0)
        shares = {policy: allocate(forest, capacity, policy) for policy in Policy}
        for found in shares.values():
            assert forest.used(found) <= capacity * forest.full + 1e-6
            most = forest.output(shares[Policy.EXACT])
            assert forest.output(found) <= most + 1e-6
            # A query without expected results gets its share nevertheless.
            if all(forest.outputs.values()):
                least = min(forest.completeness(shares[Policy.FAIR]).values())
                assert min(forest.completeness(found).values()) <= least + 1e-4
        ahead += forest.output(shares[Policy.EXACT]) > forest.output(shares[Policy.GREPP]) + 1e-6
    # If paths share steps, paying for each path alone leaves some of the budget unused.
    assert ahead > 30


def test_jaqpot_spends_what_grepp_pays_twice() -> None:
    rng, more = Random(4), 0
    for _ in range(150):
        forest, capacity = random_forest(rng), rng.uniform(0.05, 0.95)
        jaqpot, grepp = (allocate(forest, capacity, p) for p in (Policy.JAQPOT, Policy.GREPP))
        assert forest.output(jaqpot) >= forest.output(grepp) * (1 - 1e-9)
        more += forest.output(jaqpot) > forest.output(grepp) * (1 + 1e-6) + 1e-9
    assert more > 30


def test_paths_that_share_nothing_are_exact_by_productivity() -> None:
    rng = Random(5)
    for _ in range(100):
        steps, goals = list[ForestStep](), list[ForestGoal]()
        for at in range(rng.randint(1, 6)):
            first = len(steps)
            steps += [ForestStep(None, rng.expovariate(1)), ForestStep(first, rng.expovariate(1))]
            goals.append(ForestGoal(f"q{at}", "r", (first + 1,), 0.0, rng.expovariate(1)))
        forest, capacity = Forest(tuple(steps), tuple(goals)), rng.uniform(0.1, 0.9)
        one, other = (allocate(forest, capacity, p) for p in (Policy.GREPP, Policy.EXACT))
        assert one == pytest.approx(other)
        assert allocate(forest, capacity, Policy.JAQPOT) == pytest.approx(one)


@pytest.mark.parametrize("capacity", [0.0, -1.0, 1.5, float("nan")])
def test_a_capacity_is_a_share(capacity: float) -> None:
    with pytest.raises(PlannerError) as caught:
        allocate(random_forest(Random(1)), capacity, Policy.EXACT)
    assert caught.value.field == "--capacity"


def test_goals_that_bring_nothing_take_no_more_than_there_is() -> None:
    # Both paths have no results, so they are equal; their shared step has to be paid first.
    steps = (ForestStep(None, 1.0), ForestStep(0, 1.0))
    goals = (ForestGoal("q", "r", (1,), 1.0, 0.0), ForestGoal("q", "s", (0,), 0.0, 0.0))
    forest = Forest(steps, goals)
    for capacity in (0.1, 0.4, 0.9):
        shares = allocate(forest, capacity, Policy.EXACT)
        assert forest.used(shares) <= capacity * forest.full + 1e-9
