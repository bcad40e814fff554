"""Tests that reductions, components and the program keep the optimum: both sides are solved."""

from __future__ import annotations

from random import Random

import pytest

from anabranch_contract.plans.plan import Objective, Solver
from anabranch_planner.cost.model import CostModel
from anabranch_planner.search.anytime import solve_problem
from anabranch_planner.search.bounds.reduce import drop_unprofitable
from anabranch_planner.search.branch import read
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.components import join, restrict, split
from anabranch_planner.search.demands import Limits, demand
from anabranch_planner.search.formulation import formulate
from anabranch_planner.search.outcome import SolveSettings
from anabranch_planner.search.problem import PlanProblem
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.solvers.interface import Request, SolveStatus
from anabranch_planner.solvers.registry import solve
from benchmarks.planner.random_queries import natural
from tests.support.cases.demands import demanded
from tests.support.cases.small_problems import small_problem
from tests.support.oracles.brute_force import cheapest

TENS = range(6)


def small(key: str) -> PlanProblem:
    """Return the graph of a small problem, with its demands."""
    demands = demanded(key)
    found = demands.problem
    problem = build_problem(found.queries, found.model, mir=found.mir)
    return demand(problem, demands.limits, demands.switching)


def optimum(problem: PlanProblem) -> float:
    """Return the optimum of the undivided program of ``problem``, proven by HiGHS."""
    made = formulate(problem)
    solution = solve(Solver.HIGHS, Request(made.program))
    assert solution.status is SolveStatus.OPTIMAL, solution.message
    return solution.bound


def close(value: float) -> object:
    return pytest.approx(value, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("tens", TENS)
def test_the_program_costs_what_brute_force_finds_and_its_optimum_is_a_plan(tens: int) -> None:
    for number in range(10 * tens, 10 * tens + 10):
        found = small_problem(f"program {number}")
        problem = build_problem(found.queries, found.model, mir=found.mir)
        made = formulate(problem)
        solution = solve(Solver.HIGHS, Request(made.program))
        assert solution.values is not None, number
        plan = read(problem, made, list(solution.values))
        assert plan is not None, number
        assert plan.cost == close(solution.bound), number
        best = cheapest(found.queries, found.model, mir=found.mir, at_most=plan.cost)
        assert best == close(plan.cost), number


@pytest.mark.parametrize("tens", TENS)
def test_fixing_what_costs_more_than_a_known_plan_keeps_the_optimum(tens: int) -> None:
    for number in range(10 * tens, 10 * tens + 10):
        problem = small(f"fixed {number}")
        best = optimum(problem)
        known = solve_problem(problem, SolveSettings(Solver.BRANCH, 0, 1, 10**6), Deadline())
        assert known.routing.cost == close(best), number
        made = formulate(problem, known.routing.cost)
        assert solve(Solver.HIGHS, Request(made.program)).bound == close(best), number


@pytest.mark.parametrize("tens", TENS)
def test_dropping_unprofitable_mirs_keeps_the_optimum(tens: int) -> None:
    for number in range(10 * tens, 10 * tens + 10):
        problem = small(f"reduced {number}")
        reduced = drop_unprofitable(problem)
        assert reduced.mirs.keys() <= problem.mirs.keys()
        assert optimum(reduced) == close(optimum(problem)), number


def test_some_mirs_are_dropped_and_some_are_kept() -> None:
    problems = [small(f"reduced {i}") for i in range(40)]
    kept = [(len(drop_unprofitable(p).mirs), len(p.mirs)) for p in problems if p.mirs]
    assert any(0 < some < every for some, every in kept)
    assert any(some == 0 for some, _ in kept)


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_is_the_sum_of_the_components_optima(seed: int) -> None:
    problem = scattered(seed)
    parts = split(problem)
    goals = sorted(g for part in parts for g in part.goals)
    assert goals == list(range(len(problem.goals)))
    stores = [s for part in parts for s in part.problem.required]
    if problem.charged:
        contested = {s for s in stores if len(problem.partitions[s]) > 1}
        assert all(stores.count(s) == 1 for s in contested)
    # A store with one possible copy is charged to each component that probes it.
    twice = sum((stores.count(s) - 1) * problem.inserts[s] for s in dict.fromkeys(stores))
    total = sum(optimum(part.problem) for part in parts) - twice
    assert total == close(optimum(problem))
    assert optimum(join(problem, parts).problem) == close(optimum(problem))


def test_there_are_problems_of_one_and_of_several_components() -> None:
    sizes = [len(split(scattered(seed))) for seed in range(12)]
    assert min(sizes) == 1
    assert max(sizes) > 2


def scattered(seed: int) -> PlanProblem:
    """Return a problem that may divide into independent parts."""
    rng = Random(seed)
    queries, statistics = natural(
        seed, relations=rng.choice([8, 20, 30]), count=rng.choice([4, 8]), size=rng.choice([2, 3])
    )
    model = CostModel(
        statistics,
        objective=rng.choice(list(Objective)),
        parallelism=rng.choice([1, 2, 4]),
    )
    problem = build_problem(queries, model, mir=rng.random() < 0.7)
    return demand(problem, Limits(copies=1), None) if rng.random() < 0.3 else problem


def test_a_memory_budget_makes_one_component() -> None:
    problem = scattered(max(range(12), key=lambda s: len(split(scattered(s)))))
    assert len(split(problem)) > 1
    assert len(split(demand(problem, Limits(memory=1e12), None))) == 1


@pytest.mark.parametrize("tens", TENS)
def test_a_restriction_to_an_optimum_has_that_optimum(tens: int) -> None:
    for number in range(10 * tens, 10 * tens + 10):
        problem = small(f"restricted {number}")
        best = solve_problem(problem, SolveSettings(Solver.BRANCH, 0, 1, 10**6), Deadline()).routing
        used = {e for path in best.routes.values() for e in path}
        rng = Random(number)
        more = {e for goal in problem.goals for e in goal.edges if rng.random() < 0.3}

        def allowed(goal: int, edge: int, edges: frozenset[int] = frozenset(used | more)) -> bool:
            del goal
            return edge in edges

        part = restrict(problem, allowed, best.kept(problem))
        assert part is not None, number
        assert part.problem.mirs.keys() >= best.kept(problem), number
        assert optimum(part.problem) == close(best.cost), number
        # A query without its edges has no solution.
        if problem.goals[0].edges:
            assert restrict(problem, lambda g, _: g != 0, problem.mirs) is None
