"""Sessions and warm starts: plans that follow their queries, against plans made anew."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import QueryError
from anabranch_contract.plans.plan import Objective, Plan
from anabranch_contract.queries.joins import QueryId
from anabranch_planner.cost.footprint import footprint
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.demands import Switching
from anabranch_planner.solvers.deadline import Deadline
from benchmarks.planner.random_queries import natural
from benchmarks.planner.session import Session

SLACK = 1 + 1e-9


def same(plan: Plan, other: Plan) -> bool:
    return plan.cost == pytest.approx(other.cost)


@given(
    seed=st.integers(0, 10_000),
    size=st.integers(3, 4),
    parallelism=st.sampled_from((1, 3)),
    objective=st.sampled_from(list(Objective)),
    data=st.data(),
)
def test_a_session_is_valid_bounded_and_optimal_once_it_was_improved(
    seed: int, size: int, parallelism: int, objective: Objective, data: st.DataObject
) -> None:
    queries, statistics = natural(seed, relations=8, count=9, size=size)
    session = Session(statistics, parallelism=parallelism, objective=objective)
    plan = session.plan(queries[:4])
    left = list(queries[4:])
    for _ in range(4):
        there = [q.id for q in session.queries]
        drop = len(there) > 1 and data.draw(st.booleans(), label="drop")
        if drop or not left:
            plan = session.drop(data.draw(st.sampled_from(there), label="query"))
        else:
            plan = session.add(left.pop())
        validate_plan(plan, session.queries)
        assert plan.cost == pytest.approx(
            cost_of(plan, session.queries, statistics, parallelism=parallelism)
        )
        anew = optimise(
            session.queries, statistics, Options(parallelism=parallelism, objective=objective)
        )
        assert plan.bound <= anew.cost * SLACK
        assert anew.cost <= plan.cost * SLACK
    improved = session.improve()
    validate_plan(improved, session.queries)
    assert improved.cost == pytest.approx(anew.cost)
    assert improved.gap <= 1e-6


def test_one_query_beside_two_hundred_is_certified_without_planning_the_rest() -> None:
    queries, statistics = natural(1, relations=60, count=201, size=3)
    session = Session(statistics)
    session.plan(queries[:200])
    plan = session.add(queries[200])
    validate_plan(plan, queries)
    assert plan.gap <= 0.01
    assert f"around {queries[200].id}" in plan.method
    assert session.improve().cost <= plan.cost


def test_a_session_refuses_what_it_does_not_have_and_stays_as_it_was() -> None:
    queries, statistics = natural(2, relations=8, count=3, size=3)
    session = Session(statistics)
    plan = session.plan(queries)
    with pytest.raises(QueryError, match="no query 'nobody'"):
        session.drop(QueryId("nobody"))
    with pytest.raises(QueryError, match="two queries are called"):
        session.add(queries[0])
    assert session.improve().cost == plan.cost


@given(seed=st.integers(0, 10_000), parallelism=st.sampled_from((1, 4)))
def test_out_of_time_the_running_plan_stays_where_changing_it_is_charged(
    seed: int, parallelism: int
) -> None:
    queries, statistics = natural(seed, relations=8, count=6, size=4)
    best = optimise(queries, statistics, Options(parallelism=parallelism))
    plan = optimise(
        queries,
        statistics,
        Options(
            parallelism=parallelism,
            switching=Switching(footprint(best, queries), 0.5),
            deadline=Deadline(seconds=0.0),
        ),
    )
    validate_plan(plan, queries)
    assert plan.switching == 0.0
    assert plan.cost == pytest.approx(best.cost)
