"""Tests beyond the size limit: neighbourhood search and the bound by shares, against
the optimum.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.plans.plan import Objective
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.replan.session import around, exclusive, reach
from anabranch_planner.search.bounds.lower_bounds import by_shares, floor
from anabranch_planner.search.building.builder import build_problem
from anabranch_planner.search.neighbourhood import Sharing
from anabranch_planner.solvers.deadline import Deadline
from benchmarks.planner.random_queries import natural

SLACK = 1 + 1e-9


@given(
    seed=st.integers(0, 10_000),
    size=st.integers(3, 4),
    parallelism=st.sampled_from((1, 3)),
    objective=st.sampled_from(list(Objective)),
)
def test_beyond_the_cap_the_plan_is_valid_and_its_bound_holds(
    seed: int, size: int, parallelism: int, objective: Objective
) -> None:
    queries, statistics = natural(seed, relations=7, count=6, size=size)
    plan = optimise(
        queries, statistics, Options(parallelism=parallelism, objective=objective, max_flows=10)
    )
    best = optimise(queries, statistics, Options(parallelism=parallelism, objective=objective))
    validate_plan(plan, queries)
    assert plan.cost == pytest.approx(cost_of(plan, queries, statistics, parallelism=parallelism))
    assert plan.bound <= best.cost * SLACK
    assert best.cost <= plan.cost * SLACK
    assert "exceed the cap" in plan.method or plan.method.startswith("shared")


@given(seed=st.integers(0, 10_000), parallelism=st.sampled_from((1, 3)))
def test_lower_bounds_are_lower_bounds(seed: int, parallelism: int) -> None:
    queries, statistics = natural(seed, relations=7, count=5, size=3)
    model = CostModel(statistics, parallelism=parallelism)
    problem = build_problem(queries, model)
    best = optimise(queries, statistics, Options(parallelism=parallelism)).cost
    assert floor(problem) <= best * SLACK
    assert by_shares(problem, Deadline(), 0) <= best * SLACK
    others = [q for q in queries if q.id != queries[0].id]
    without = optimise(others, statistics, Options(parallelism=parallelism)).cost
    rest = reach(problem, [q.id for q in others])
    assert without + exclusive(problem, [queries[0].id], rest, Options()) <= best * SLACK


def test_neighbourhoods_come_close_to_the_optimum() -> None:
    queries, statistics = natural(0, relations=30, count=60, size=4)
    plan = optimise(queries, statistics, Options(max_flows=10))
    assert plan.cost <= 1.02 * optimise(queries, statistics, Options()).cost
    assert plan.gap <= 0.2


def test_a_neighbourhood_is_those_that_share_most() -> None:
    queries, statistics = natural(0, relations=10, count=30, size=3)
    problem = build_problem(queries, CostModel(statistics))
    sharing = Sharing(problem)
    for query in problem.queries:
        near = around(problem, [query], flows=100)
        assert near[0] == query
        assert near == sharing.around(query, flows=100)
        assert len(near) == len(set(near))
