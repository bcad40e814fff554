"""Tests of the integer program printed in the paper: its examples' numbers, its lists,
its limits.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Objective, Solver
from anabranch_contract.queries.joins import JoinQuery, Label
from anabranch_planner.cost.model import CostModel
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.formulation import formulate
from anabranch_planner.search.printed.candidates import (
    candidate_orders,
    count_orders,
    decorate,
    mirs_of,
    partition_candidates,
)
from anabranch_planner.search.printed.formulation import (
    ListedProgram,
    formulate_paper,
    orders_of,
    solve_paper,
)
from anabranch_planner.search.problem import PlanProblem
from anabranch_planner.search.routes import Routing, finish, route_greedily, tree_routes
from anabranch_planner.solvers import registry
from anabranch_planner.solvers.deadline import Deadline
from anabranch_planner.solvers.interface import Request, Solution, SolveStatus
from anabranch_planner.solvers.program import INFINITY, Program
from tests.support.cases.queries import chain, given_statistics, join_query
from tests.support.cases.random_problems import random_queries, uniform_statistics

Q1 = chain("R.a=S.a", "S.b=T.b", id="q1")
Q2 = chain("S.b=T.b", "T.c=U.c", id="q2")
#: The queries of Figure 3.
F1 = chain("R.b=S.b", "S.c=T.c", id="q1")
F2 = chain("S.c=T.c", "T.d=U.d", id="q2")
STATISTICS = given_statistics(
    default=100.0, selectivities={"S.b=T.b": 0.015}, selectivity_default=0.01
)


def model(
    objective: Objective = Objective.PAPER, parallelism: int = 4, *, partitioning: bool = True
) -> CostModel:
    return CostModel(
        STATISTICS, objective=objective, parallelism=parallelism, partitioning=partitioning
    )


def planned(
    *queries: JoinQuery, mir: bool, solver: Solver = Solver.HIGHS
) -> tuple[PlanProblem, Routing, Solution]:
    problem = build_problem(queries, model(partitioning=False), mir=mir)
    found = solve_paper(problem, queries, solver=solver)
    barred = problem.mirs.keys() - set(found.mirs)
    return problem, finish(problem, tree_routes(problem, found.edges, barred)), found.solution


def order_of(problem: PlanProblem, routing: Routing, name: str, start: str) -> list[str]:
    (index,) = (i for i, g in enumerate(problem.goals) if (g.name, g.start) == (name, Label(start)))
    return ["".join(problem.graph.members(e)) for e in routing.routes[index]]


@pytest.mark.parametrize(
    ("queries", "mir", "cost"),
    [
        ([Q1], False, 475),
        ([Q2], False, 475),
        ([Q1, Q2], False, 800),
        ([Q1], True, 400),
        ([Q2], True, 400),
        ([Q1, Q2], True, 700),
    ],
)
@pytest.mark.parametrize("solver", registry.PROGRAM_SOLVERS)
def test_worked_example(queries: list[JoinQuery], mir: bool, cost: float, solver: Solver) -> None:
    problem, routing, solution = planned(*queries, mir=mir, solver=solver)
    assert solution.status is SolveStatus.OPTIMAL
    assert solution.bound == pytest.approx(cost)
    assert routing.cost == pytest.approx(cost)
    if len(queries) == 2 and not mir:
        assert order_of(problem, routing, "q1", "S") == ["T", "R"]
        assert order_of(problem, routing, "q2", "T") == ["S", "U"]


def test_figure_3_is_what_the_variables_stand_for() -> None:
    listed = formulate_paper([F1, F2], model())
    partitions = partition_candidates([F1, F2])
    for query in (F1, F2):
        for start in query.labels:
            expected = {
                decorated
                for order in candidate_orders(query, start)
                for decorated in decorate(order, partitions)
            }
            assert set(listed.orders[False, query.id, start]) == expected
            assert count_orders(query, start, partitions) == len(expected)
    kept = {m.id: m for q in (F1, F2) for _, m in mirs_of(q) if not m.is_base}.values()
    assert {goal[1] for goal in listed.orders if goal[0]} == {m.id for m in kept}
    assert {(goal[1], goal[2]) for goal in listed.orders if goal[0]} == {
        (m.id, label) for m in kept for label in m.members
    }


def test_equal_prefixes_of_different_goals_are_one_variable() -> None:
    listed = formulate_paper([F1, F2], model(), mir=False)
    first = [
        (before, probe.target, str(probe.partition))
        for before, probe, _ in listed.steps
        if before == "S" and probe.target == "T"
    ]
    # Both queries join S with T by c, from S first: one step per partition attribute of T.
    assert sorted(first) == [("S", "T", "T.c"), ("S", "T", "T.d")]


@pytest.mark.parametrize("parallelism", [1, 4])
@pytest.mark.parametrize("objective", list(Objective))
def test_a_plan_and_the_point_that_stands_for_it(objective: Objective, parallelism: int) -> None:
    queries = random_queries(3, count=6, size=3, relations=6)
    cost_model = CostModel(uniform_statistics(), objective=objective, parallelism=parallelism)
    problem = build_problem(queries, cost_model)
    found = solve_paper(problem, queries)
    barred = problem.mirs.keys() - set(found.mirs)
    best = finish(problem, tree_routes(problem, found.edges, barred))
    assert best.cost == pytest.approx(found.solution.bound)
    assert set(found.mirs) == best.kept(problem)
    listed = formulate_paper(queries, cost_model, at_most=best.cost)
    point = listed.point(orders_of(problem, best))
    assert point is not None
    answer = Solution(SolveStatus.FEASIBLE, point, -INFINITY, 0.0)
    assert registry.checked(Solver.HIGHS, Request(listed.program), answer).values == point
    costs = zip(listed.program.costs, point, strict=True)
    assert sum(c * v for c, v in costs) == pytest.approx(best.cost)


def test_out_of_time_the_known_plan_is_what_comes_back() -> None:
    queries = random_queries(3, count=6, size=3, relations=6)
    problem = build_problem(queries, CostModel(uniform_statistics(), parallelism=4))
    known = route_greedily(problem)
    assert known is not None
    found = solve_paper(problem, queries, known=known, deadline=Deadline(seconds=0.0))
    assert found.solution.status in (SolveStatus.FEASIBLE, SolveStatus.NOTHING)
    if found.edges:
        barred = problem.mirs.keys() - set(found.mirs)
        again = finish(problem, tree_routes(problem, found.edges, barred))
        assert again.cost <= known.cost * (1 + 1e-9)


def integral(listed: ListedProgram, solver: Solver = Solver.HIGHS) -> Solution:
    return registry.solve(solver, Request(listed.program))


def test_steps_that_cost_nothing_are_chosen_with_their_order() -> None:
    statistics = given_statistics(
        cardinalities={"R": 0.0, "S": 5.0, "T": 0.0}, selectivity_default=0.0
    )
    listed = formulate_paper([Q1], CostModel(statistics, objective=Objective.TUPLES))
    solution = integral(listed)
    assert solution.values is not None
    for goal, order in listed.chosen(solution.values).items():
        assert order
        parts = listed.parts[listed.orders[goal][order]]
        assert all(solution.values[y] == 1.0 for y in parts)
        assert all(solution.values[listed.copy_of[y]] == 1.0 for y in parts)


def test_the_program_is_the_same_whatever_the_order_of_the_queries() -> None:
    queries = list(random_queries(5, count=4, size=3, relations=5))
    one = formulate_paper(queries, model())
    Random(1).shuffle(queries)
    assert formulate_paper(queries, model()).program == one.program


def relaxed(program: Program) -> float:
    """Return the optimum of the program without integrality."""
    loose = replace(program, integers=[False] * program.variables)
    found = registry.solve(Solver.HIGHS, Request(loose))
    assert found.values is not None
    return program.offset + sum(c * v for c, v in zip(program.costs, found.values, strict=True))


def test_its_relaxation_is_weaker_than_the_tight_one() -> None:
    queries = random_queries(1, count=6, size=4, relations=6)
    cost_model = CostModel(uniform_statistics(), objective=Objective.PAPER)
    listed = formulate_paper(queries, cost_model, mir=False)
    problem = build_problem(queries, cost_model, mir=False)
    assert relaxed(listed.program) < 0.9 * relaxed(formulate(problem).program)


def test_more_orders_than_the_cap_are_refused() -> None:
    problem = build_problem([F1, F2], model())
    orders = sum(len(found) for found in formulate_paper([F1, F2], model()).orders.values())
    assert solve_paper(problem, [F1, F2], max_orders=orders).orders == orders
    with pytest.raises(PlannerError, match=f"more than {orders - 1} decorated orders") as refusal:
        solve_paper(problem, [F1, F2], max_orders=orders - 1)
    assert refusal.value.code == "formulation-limit"
    assert "tight" in refusal.value.remedy


def test_a_clique_of_twelve_is_refused_before_its_orders_are_listed() -> None:
    labels = [f"r{i}" for i in range(12)]
    clique = join_query([f"{a}.k={b}.k" for a in labels for b in labels if a < b], id="big")
    with pytest.raises(PlannerError, match="'big' has more than 600 sub-joins"):
        formulate_paper([clique], model())


def test_queries_over_one_relation_have_no_variables() -> None:
    single = join_query((), id="q", labels=("R",))
    problem = build_problem([single], model())
    found = solve_paper(problem, [single])
    assert (found.solution.status, found.edges, found.variables) == (SolveStatus.OPTIMAL, (), 0)
