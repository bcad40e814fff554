"""Compare the allocation ``results`` with GrePP for one query whose paths share no step: both are
optimal.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from anabranch_planner.allocation.forest import Forest, ForestGoal, ForestStep
from anabranch_planner.allocation.results import increments
from benchmarks.papers.jaqpot.allocate.policies import Policy, allocate
from benchmarks.papers.jaqpot.printed.grepp import grepp
from benchmarks.papers.jaqpot.printed.paths import (
    InputPath,
    input_paths,
    saturation,
    throughput,
)
from tests.benchmarks.papers.jaqpot.printed.plans import SHAPES, figure_4, figure_10, random_plan
from tests.support.oracles.most_results import most_results


def apart(rng: Random) -> Forest:
    """Return one query of one to eight paths of up to five steps, none shared, in random order."""
    parents = [[None, *range(rng.randint(0, 4))] for _ in range(rng.randint(1, 8))]
    left = [at for at, path in enumerate(parents) for _ in path]
    rng.shuffle(left)
    steps, last = list[ForestStep](), dict[int, int]()
    for at in left:
        cost = rng.choice((0.0, rng.expovariate(1.0), rng.expovariate(0.1), 2.0))
        steps.append(ForestStep(last.get(at), cost))
        last[at] = len(steps) - 1
    goals = [
        ForestGoal(
            "q",
            f"r{at}",
            (step,),
            rng.choice((0.0, rng.random())),
            rng.choice((0.0, rng.random(), 3.0)),
        )
        for at, step in sorted(last.items())
    ]
    if rng.random() < 0.2:
        goals.append(ForestGoal("q", "alone", (), rng.random(), rng.random()))
    return Forest(tuple(steps), tuple(goals))


def test_a_thousand_forests_keep_as_many_results_as_grepp() -> None:
    rng, rationed, unequal = Random(20), 0, 0
    for _ in range(1000):
        forest, capacity = apart(rng), rng.uniform(0.01, 0.99)
        if not forest.full:
            continue
        mine = most_results(forest, capacity * forest.full)
        theirs = allocate(forest, capacity, Policy.GREPP)
        assert forest.output(mine) == pytest.approx(forest.output(theirs))
        for shares in (mine, theirs):
            assert forest.used(shares) <= capacity * forest.full * (1 + 1e-9)
        found = increments(forest)
        assert [len(one.goals) for one in found] == [1] * len(forest.goals)
        ratios = [one.output / one.cost for one in found if one.cost]
        assert ratios == sorted(ratios, reverse=True)
        if all(a > b * (1 + 1e-9) for a, b in pairwise(ratios)) and len(ratios) == len(found):
            assert mine == pytest.approx(theirs)
            unequal += 1
        rationed += any(0 < share < 1 for share in mine)
    assert rationed > 800
    assert unequal > 300


def forest_of_paths(paths: tuple[InputPath, ...]) -> Forest:
    """Return a forest as the paper's input paths, with a probe as the unit of cost, and the steps
    before the goals'.
    """
    steps, goals = list[ForestStep](), list[ForestGoal]()
    for path in paths:
        for hop, phi in enumerate(path.phi[:-1]):
            steps.append(ForestStep(len(steps) - 1 if hop else None, path.leaf.rate * phi))
        results = path.leaf.rate * path.phi[-1]
        goals.append(ForestGoal("q", path.name, (len(steps) - 1,), 0.0, results))
    return Forest(tuple(steps), tuple(goals))


def test_random_plans_keep_as_many_results_as_grepp_as_printed() -> None:
    rng, same = Random(21), 0
    for at in range(1000):
        shape = SHAPES[at % len(SHAPES)]
        paths = input_paths(random_plan(rng, rng.randint(2, 8), shape, zeros=at % 5 == 0))
        forest, mu = forest_of_paths(paths), rng.uniform(0.0, 1.1) * saturation(paths)[0]
        assert forest.full == pytest.approx(saturation(paths)[0])
        resources, shares = grepp(paths, mu), most_results(forest, mu)
        assert forest.output(shares) == pytest.approx(throughput(paths, resources))
        by_productivity = sorted((path.productivity for path in paths), reverse=True)
        if all(a > b * (1 + 1e-9) for a, b in pairwise(by_productivity)):
            wanted = [resources[path.name] / path.most for path in paths]
            assert shares == pytest.approx(wanted)
            same += 1
    assert same > 300


@pytest.mark.parametrize(("plan", "mu", "output"), [(figure_4, 30, 9.375), (figure_10, 300, 1250)])
def test_the_examples_of_the_paper(plan: object, mu: float, output: float) -> None:
    assert callable(plan)
    forest = forest_of_paths(input_paths(plan()))
    assert forest.output(most_results(forest, mu)) == pytest.approx(output)
