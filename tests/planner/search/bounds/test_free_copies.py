"""Tests of the bound with copies chosen separately from routes: bound and plan are as good as
claimed.
"""

from __future__ import annotations

import pytest

from anabranch_contract.plans.plan import Objective
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options, PlanRequest, cost_model
from anabranch_planner.search import anytime
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.bounds import free_copies
from anabranch_planner.search.building.builder import Builder
from anabranch_planner.search.problem import PlanProblem
from anabranch_planner.search.routes import first_routing
from anabranch_planner.solvers.deadline import Deadline
from benchmarks.planner.random_queries import natural

SLACK = 1 + 1e-9
SETTINGS = Options().settings


def problem_of(seed: int, parallelism: int, objective: Objective) -> PlanProblem:
    queries, statistics = natural(seed, relations=9, count=8, size=3 + seed % 2)
    options = Options(parallelism=parallelism, objective=objective)
    builder = Builder(cost_model(queries, PlanRequest(queries, statistics, options)))
    builder.add(queries)
    return builder.problem()


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("objective", [Objective.TUPLES, Objective.SECONDS])
def test_the_optimum_is_between_the_bound_and_the_plan(seed: int, objective: Objective) -> None:
    problem = problem_of(seed, 2 + seed % 3, objective)
    assert free_copies.applies(problem)
    best = solve_problem(problem, SETTINGS, Deadline())
    assert best.proven
    greedy = first_routing(problem)
    routing, bound = free_copies.descend(
        problem, greedy, lambda p, d: solve_problem(p, SETTINGS, d), Deadline()
    )
    assert bound <= best.routing.cost * SLACK
    assert best.routing.cost <= routing.cost * SLACK
    assert routing.cost <= greedy.cost * SLACK


def test_a_store_without_partitions_has_nothing_to_choose() -> None:
    assert not free_copies.applies(problem_of(1, 1, Objective.TUPLES))
    relaxed = free_copies.relaxation(problem_of(1, 4, Objective.TUPLES))
    assert not free_copies.applies(relaxed)
    assert not relaxed.charged


def test_a_problem_that_copies_tie_together_is_planned_by_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Too large to solve in time as a whole; its parts are connected by copies."""
    monkeypatch.setattr(anytime, "TIED", 1e-3)
    queries, statistics = natural(4, relations=30, count=60, size=3)
    options = Options(parallelism=4, deadline=Deadline(seconds=60.0))
    plan = optimise(queries, statistics, options)
    validate_plan(plan, queries)
    assert plan.method.startswith("neighbourhoods")
    assert plan.cost == pytest.approx(cost_of(plan, queries, statistics, parallelism=4))
    best = optimise(queries, statistics, Options(parallelism=4))
    assert plan.bound <= best.cost * SLACK
    assert best.cost <= plan.cost * SLACK
    assert plan.cost <= 1.2 * best.cost
    assert plan.gap < 0.3
