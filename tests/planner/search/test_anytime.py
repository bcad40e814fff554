"""Tests of the anytime contract: with any deadline a valid plan, a true bound, and how it was
found.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pytest

from anabranch_contract.plans.plan import Objective, Optimizer, Plan, Solver
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.demands import Limits
from anabranch_planner.solvers.deadline import Deadline
from benchmarks.planner.random_queries import natural
from tests.support.cases.queries import given_statistics, join_query


@dataclass
class Ticking:
    """A clock that advances by a second whenever it is read."""

    now: float = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def workload(seed: int) -> tuple[Sequence[JoinQuery], Statistics]:
    return natural(seed, relations=10, count=14, size=4)


def plan_within(seed: int, deadline: float | None, optimizer: Optimizer, **more: object) -> Plan:
    queries, statistics = workload(seed)
    limit = Deadline(Ticking(), seconds=deadline)
    plan = optimise(
        queries, statistics, Options(optimizer=optimizer, parallelism=3, deadline=limit, **more),  # type: ignore[arg-type]
    )  # fmt: skip
    validate_plan(plan, queries)
    assert cost_of(plan, queries, statistics, parallelism=3) == pytest.approx(plan.cost)
    assert 0 <= plan.bound <= plan.cost
    assert plan.gap == pytest.approx((plan.cost - plan.bound) / plan.cost)
    assert plan.method
    return plan


#: Numbers of clock reads: none, in the middle of each pass, and enough for everything.
DEADLINES = (0.0, 1.0, 4.0, 8.0, 12.0, 15.0, 20.0, 35.0, 60.0, 120.0, 400.0, 1e6)


@pytest.mark.parametrize("seed", range(3))
def test_every_deadline_gives_a_plan_with_a_true_bound(seed: int) -> None:
    best = plan_within(seed, None, Optimizer.CLASH)
    assert (best.gap, best.method) == (0.0, "branch")
    methods, gaps = [], []
    for deadline in DEADLINES:
        plan = plan_within(seed, deadline, Optimizer.CLASH)
        assert plan.bound <= best.cost * (1 + 1e-6), deadline
        assert best.cost <= plan.cost * (1 + 1e-6), deadline
        # Either the plan is proven optimal, or the method says why not.
        if plan.gap == 0.0:
            assert plan.cost == pytest.approx(best.cost)
        else:
            assert "time" in plan.method, plan.method
        methods.append(plan.method)
        gaps.append(plan.gap)
    assert "no time for more" in methods[0]
    assert gaps[0] == max(gaps) > 0
    assert methods[-1] == "branch"
    assert gaps[-1] == 0.0
    assert len({round(g, 12) for g in gaps}) > 2, "no deadline struck between the passes"


@pytest.mark.parametrize("optimizer", [Optimizer.SHARED, Optimizer.INDIVIDUAL])
def test_so_do_the_other_optimisers(optimizer: Optimizer) -> None:
    best = plan_within(0, None, optimizer)
    if optimizer is Optimizer.INDIVIDUAL:
        assert best.gap == 0.0
    for deadline in (0.0, 5.0, 40.0, 150.0, 1e6):
        plan = plan_within(0, deadline, optimizer)
        assert plan.bound <= best.cost * (1 + 1e-6)
    assert plan.cost == pytest.approx(best.cost)


def test_equal_clocks_give_equal_plans() -> None:
    for deadline in DEADLINES:
        one, other = (plan_within(1, deadline, Optimizer.CLASH) for _ in range(2))
        assert one == other


@pytest.mark.parametrize("solver", [Solver.BRANCH, Solver.HIGHS])
def test_no_time_at_all_asks_no_solver(solver: Solver) -> None:
    plan = plan_within(2, 0.0, Optimizer.CLASH, solver=solver)
    assert (plan.variables, plan.constraints) == (0, 0)


def test_limits_hold_under_every_deadline() -> None:
    for deadline in (0.0, 12.0, 35.0):
        plan = plan_within(0, deadline, Optimizer.CLASH, limits=Limits(copies=1))
        assert len({c.mir for c in plan.copies}) == len(plan.copies)


@pytest.mark.parametrize("objective", list(Objective))
def test_a_twelve_way_clique_is_planned_and_the_plan_says_that_it_was_cut_down(
    objective: Objective,
) -> None:
    names = [f"R{i:02}" for i in range(12)]
    pairs = [(i, j) for j in range(12) for i in range(j)]
    clique = join_query([f"{names[i]}.a{j}={names[j]}.b{i}" for i, j in pairs], id="clique")
    small = join_query([f"{names[0]}.a1={names[1]}.b0", "R01.x=S.x"], id="small")
    statistics = given_statistics(default=50.0, selectivity_default=0.3)
    plan = optimise([clique, small], statistics, Options(objective=objective, parallelism=2))
    validate_plan(plan, [clique, small])
    assert "one order per start for clique (cap)" in plan.method
    assert 0 < plan.bound <= plan.cost
    assert plan.gap == pytest.approx((plan.cost - plan.bound) / plan.cost)
