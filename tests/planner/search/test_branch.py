"""Compare our branch and bound with a general solver's proven optima, on problems too large for
brute force.
"""

from __future__ import annotations

from itertools import pairwise
from random import Random

import pytest

from anabranch_contract.plans.plan import Objective, Solver
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.branch import advance, begin
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.formulation import formulate, start_values
from anabranch_planner.search.outcome import SolveSettings
from anabranch_planner.search.routes import first_routing
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.solvers.interface import Request, SolveStatus
from anabranch_planner.solvers.registry import solve
from benchmarks.planner.random_queries import natural
from tests.support.cases.queries import given_statistics
from tests.support.cases.small_problems import any_query


def natural_joins(seed: int) -> tuple[tuple[JoinQuery, ...], Statistics]:
    """Return six to twelve natural joins over few relations, so that much is shared."""
    rng = Random(seed)
    size = rng.choice([3, 3, 4])
    return natural(
        seed, relations=rng.choice([8, 12]), count=rng.choice([6, 12]), size=size, per_relation=3
    )


def self_joins(seed: int, count: int = 5) -> tuple[tuple[JoinQuery, ...], Statistics]:
    """Return queries of three to four labels; a relation may occur twice in a query."""
    rng = Random(f"self joins {seed}")
    queries = tuple(any_query(rng, f"q{i}", rng.choice([3, 3, 4])) for i in range(count))
    sizes = {name: rng.choice([10.0, 60.0, 100.0, 300.0]) for name in "RSTUV"}
    distincts = {(name, a): rng.uniform(5, 80) for name in "RSTUV" for a in "abc"}
    return queries, given_statistics(cardinalities=sizes, distincts=distincts)


@pytest.mark.parametrize("parallelism", [1, 2, 3, 4])
@pytest.mark.parametrize("objective", list(Objective))
@pytest.mark.parametrize("mir", [True, False])
@pytest.mark.parametrize("make", [natural_joins, self_joins])
def test_branching_and_a_general_solver_agree(
    parallelism: int, objective: Objective, mir: bool, make: object
) -> None:
    assert callable(make)
    number = parallelism + 10 * mir + 100 * (objective is Objective.PAPER)
    for seed in (number,) if make is natural_joins else (number, number + 1000):
        queries, statistics = make(seed)
        plans = [
            optimise(
                queries,
                statistics,
                Options(objective=objective, parallelism=parallelism, mir=mir, solver=solver),
            )
            for solver in (Solver.BRANCH, Solver.HIGHS)
        ]
        for plan in plans:
            validate_plan(plan, queries)
            again = cost_of(plan, queries, statistics, parallelism=parallelism)
            assert again == pytest.approx(plan.cost), seed
            assert plan.gap <= 1e-6, seed
        assert plans[0].cost == pytest.approx(plans[1].cost, rel=1e-6), seed


def test_some_of_these_need_branching() -> None:
    """Check that some problems branch; otherwise the test above would test the root relaxation
    only.
    """
    nodes = []
    for seed in range(12):
        queries, statistics = self_joins(seed, count=7)
        model = CostModel(statistics, parallelism=2)
        problem = build_problem(queries, model)
        search = begin(problem, first_routing(problem), Deadline(), 0, 0.0)
        assert advance(search, Deadline())
        nodes.append(search.nodes)
    assert max(nodes) > 3


@pytest.mark.parametrize("seed", range(6))
def test_bounds_only_rise_and_plans_only_improve_node_by_node(seed: int) -> None:
    queries, statistics = self_joins(seed)
    model = CostModel(statistics, parallelism=3)
    problem = build_problem(queries, model)
    best = solve(Solver.HIGHS, Request(formulate(problem).program)).bound
    search = begin(problem, first_routing(problem), Deadline(), seed, 0.0)
    seen = [(search.bound, search.best.cost)]
    while not advance(search, Deadline(), nodes=1):
        seen.append((search.bound, search.best.cost))
        assert search.nodes < 2000
    seen.append((search.bound, search.best.cost))
    for (low, high), (later_low, later_high) in pairwise(seen):
        assert low <= later_low * (1 + 1e-9)
        assert later_high <= high
        assert low <= best * (1 + 1e-6)
        assert best <= high * (1 + 1e-6)
    assert search.bound == search.best.cost == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("seed", range(6))
def test_a_plan_is_a_feasible_point_of_its_cost(seed: int) -> None:
    queries, statistics = natural_joins(seed)
    for objective in Objective:
        model = CostModel(statistics, objective=objective, parallelism=3)
        problem = build_problem(queries, model)
        made = formulate(problem)
        plan = solve_problem(problem, SolveSettings(Solver.BRANCH, 0, 1, 10**6), Deadline()).routing
        point = start_values(problem, made, plan)
        program = made.program
        for row in range(program.rows):
            some = range(program.starts[row], program.starts[row + 1])
            activity = sum(program.values[k] * point[program.indices[k]] for k in some)
            assert program.lowers[row] - 1e-9 <= activity <= program.uppers[row] + 1e-9
        value = sum(c * v for c, v in zip(program.costs, point, strict=True)) + program.offset
        assert value == pytest.approx(plan.cost)
        solution = solve(Solver.HIGHS, Request(program, tuple(point)))
        assert solution.status is SolveStatus.OPTIMAL
        assert solution.bound == pytest.approx(plan.cost, rel=1e-6)
