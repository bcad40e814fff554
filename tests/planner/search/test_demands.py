"""Tests of optima under limits and switching charges, against brute force; refusals."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Formulation, Objective, Optimizer, Plan, Solver
from anabranch_planner.cost.footprint import Footprint, footprint
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.validate import cost_of, validate_plan
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from anabranch_planner.search.demands import Limits, Switching
from anabranch_planner.solvers.deadline import Deadline
from tests.support.cases.demands import Demanded, bytes_of, complaint, least_memory, plan_of, wrong
from tests.support.cases.queries import chain, equality, given_statistics
from tests.support.cases.small_problems import SmallProblem, small_problem
from tests.support.scenarios.seeds import fewer_examples

keys = st.integers(0, 10**9).map(str)
QUERIES = (
    chain("R.a=S.a", "S.b=T.b", id="q1"),
    chain("S.b=T.b", "T.c=U.c", id="q2"),
)
STATISTICS = given_statistics(
    cardinalities={"R": 50.0, "S": 100.0, "T": 80.0, "U": 300.0},
    selectivities={"R.a=S.a": 0.02, "S.b=T.b": 0.015, "T.c=U.c": 0.01},
)
#: Two queries that share nothing; each has an intermediate result that pays.
APART = (chain("R.a=S.a", "S.b=T.b", id="q1"), chain("U.a=V.a", "V.b=W.b", id="q2"))
SELECTIVE = given_statistics(
    default=100.0,
    selectivities={"R.a=S.a": 0.002, "U.a=V.a": 0.003},
    selectivity_default=0.05,
)
NOTHING: Footprint = footprint(optimise([], STATISTICS, Options()), [])


@pytest.mark.parametrize("tens", range(7))
def test_the_optimum_is_what_brute_force_finds(tens: int) -> None:
    assert [complaint(f"a:{10 * tens + i}") for i in range(10)] == [""] * 10


@fewer_examples(10)
@given(keys)
def test_the_optimum_is_what_brute_force_finds_whatever_the_problem(key: str) -> None:
    assert complaint(key) == ""


def test_a_general_solver_finds_the_same_optimum() -> None:
    assert [complaint(f"a:{i}", Solver.HIGHS) for i in range(20)] == [""] * 20


# --- limits ------------------------------------------------------------------------------------


@given(keys)
def test_memory_below_one_copy_of_everything_is_refused(key: str) -> None:
    problem = small_problem(key)
    least = least_memory(problem, {})
    plan = plan_of(Demanded(problem, Limits(memory=least), None))
    assert bytes_of(plan, problem.model, {}) == pytest.approx(least)
    if least > 0:
        with pytest.raises(PlannerError) as caught:
            plan_of(Demanded(problem, Limits(memory=least * 0.99), None))
        assert (caught.value.code, caught.value.field) == ("memory-limit", "memory")
        assert "raise the budget" in caught.value.remedy
        assert f"{least:.0f}" in caught.value.message


def test_more_memory_is_never_dearer() -> None:
    problem = SmallProblem(QUERIES, STATISTICS, Objective.TUPLES, 4, mir=True)
    least = least_memory(problem, {})
    plans = [plan_of(Demanded(problem, Limits(memory=least * x), None)) for x in (1, 1.5, 2, 3, 9)]
    costs = [p.cost for p in plans]
    assert costs == sorted(costs, reverse=True)
    assert costs[0] > costs[-1]
    assert costs[-1] == plan_of(Demanded(problem, Limits(), None)).cost
    for plan, factor in zip(plans, (1, 1.5, 2, 3, 9), strict=True):
        assert bytes_of(plan, problem.model, {}) <= least * factor * (1 + 1e-6)


def test_one_copy_of_a_store_where_two_would_be_cheaper() -> None:
    def copies_of_s(limits: Limits) -> int:
        problem = SmallProblem(QUERIES, STATISTICS, Objective.TUPLES, 4, mir=False)
        return sum(c.mir == "S" for c in plan_of(Demanded(problem, limits, None)).copies)

    assert copies_of_s(Limits()) == 2
    assert copies_of_s(Limits(copies=1)) == 1


@given(keys, st.integers(0, 4))
def test_the_optimum_under_a_cap_is_what_brute_force_finds(key: str, most: int) -> None:
    """The plan is proven, within the cap, and as cheap as the best of all plans within it."""
    problem = small_problem(key)
    demands = Demanded(problem, Limits(mirs=most), None)
    assert wrong(demands, plan_of(demands)) == ""


def test_caps_are_reached_one_by_one() -> None:
    """The cost decreases with every further intermediate result that the cap allows."""
    problem = SmallProblem(APART, SELECTIVE, Objective.TUPLES, 1, mir=True)
    plans = [plan_of(Demanded(problem, Limits(mirs=most), None)) for most in (0, 1, 2)]
    free = plan_of(Demanded(problem, Limits(), None))
    kept = [sum(not m.is_base for m in plan.mirs) for plan in plans]
    assert kept == [0, 1, 2]
    assert plans[0].cost > plans[1].cost > plans[2].cost
    assert plans[0].cost == optimise(APART, SELECTIVE, Options(mir=False)).cost
    assert plans[2].cost == free.cost


@pytest.mark.parametrize("optimizer", [Optimizer.SHARED, Optimizer.INDIVIDUAL])
def test_optimisers_of_single_queries_keep_nothing_under_a_cap(optimizer: Optimizer) -> None:
    def kept(most: int | None) -> int:
        options = Options(optimizer=optimizer, limits=Limits(mirs=most))
        return sum(not m.is_base for m in optimise(APART, SELECTIVE, options).mirs)

    assert kept(None) == 2
    assert (kept(0), kept(1)) == (0, 0)


def test_a_cap_holds_without_time_and_by_neighbourhoods() -> None:
    """Planning one query after the other: what others keep counts once."""
    joins = [f"{a}.k{at}={b}.k{at}" for at, (a, b) in enumerate(pairwise("ABCDEFGHI"))]
    queries = [chain(*joins[n : n + 3], id=f"q{n}") for n in range(5)]
    statistics = given_statistics(default=100.0, selectivity_default=0.005)
    for most in (1, 2, 3):
        for options in (
            Options(limits=Limits(mirs=most), max_flows=1),
            Options(limits=Limits(mirs=most), deadline=Deadline(seconds=0.0)),
        ):
            plan = optimise(queries, statistics, options)
            validate_plan(plan, queries)
            assert sum(not m.is_base for m in plan.mirs) <= most
            proven = optimise(queries, statistics, Options(limits=Limits(mirs=most)))
            assert plan.bound <= proven.cost * (1 + 1e-9)
            assert proven.cost <= plan.cost * (1 + 1e-9)


def test_wider_tuples_take_more_of_the_memory() -> None:
    problem = SmallProblem(QUERIES, STATISTICS, Objective.TUPLES, 4, mir=True)
    budget = least_memory(problem, {})
    with pytest.raises(PlannerError, match="the budget is"):
        plan_of(Demanded(problem, Limits(memory=budget, widths={"S": 101.0}), None))
    narrow = plan_of(Demanded(problem, Limits(memory=budget, widths={"S": 1.0}), None))
    assert narrow.cost < plan_of(Demanded(problem, Limits(memory=budget), None)).cost


@pytest.mark.parametrize(
    ("field", "make"),
    [
        ("memory", lambda: Limits(memory=-1.0)),
        ("memory", lambda: Limits(memory=float("nan"))),
        ("memory", lambda: Limits(memory=float("inf"))),
        ("copies", lambda: Limits(copies=0)),
        ("intermediate_results", lambda: Limits(mirs=-1)),
        ("widths", lambda: Limits(widths={"R": 0.0})),
        ("widths", lambda: Limits(widths={"R": float("inf")})),
        ("switching", lambda: Switching(NOTHING, -0.1)),
        ("switching", lambda: Switching(NOTHING, float("nan"))),
    ],
)
def test_limits_that_make_no_sense_are_refused(field: str, make: object) -> None:
    assert callable(make)
    with pytest.raises(PlannerError) as caught:
        make()
    assert caught.value.field == field
    assert caught.value.remedy


def test_the_printed_formulation_knows_no_limits() -> None:
    with pytest.raises(PlannerError) as caught:
        optimise(
            QUERIES, STATISTICS, Options(formulation=Formulation.PAPER, limits=Limits(copies=1))
        )
    assert (caught.value.code, caught.value.field) == ("formulation-limit", "formulation")


# --- switching ---------------------------------------------------------------------------------


def replan(running: Plan, statistics: Statistics, weight: float) -> Plan:
    switching = Switching(footprint(running, QUERIES), weight)
    plan = optimise(QUERIES, statistics, Options(parallelism=4, switching=switching))
    validate_plan(plan, QUERIES)
    assert cost_of(plan, QUERIES, statistics, parallelism=4) == pytest.approx(plan.cost)
    return plan


@given(keys)
def test_weight_0_makes_no_difference(key: str) -> None:
    problem = small_problem(key)
    free = plan_of(Demanded(problem, Limits(), None))
    assert plan_of(Demanded(problem, Limits(), Switching(NOTHING, 0.0))) == free


@given(keys, st.sampled_from([0.01, 0.1, 1.0]))
def test_a_plan_that_is_optimal_already_stays_and_is_charged_nothing(
    key: str, weight: float
) -> None:
    problem = small_problem(key)
    before = plan_of(Demanded(problem, Limits(), None))
    running = footprint(before, problem.queries)
    after = plan_of(Demanded(problem, Limits(), Switching(running, weight)))
    assert after.switching == 0
    assert after.cost == pytest.approx(before.cost)


def test_a_small_gain_does_not_rewire_a_plan_and_a_large_one_does() -> None:
    before = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    shifted = replace(
        STATISTICS, selectivities={**STATISTICS.selectivities, equality("S.b=T.b"): 0.03}
    )
    free = optimise(QUERIES, shifted, Options(parallelism=4))
    running = footprint(before, QUERIES)
    assert footprint(free, QUERIES) != running
    stays = replan(before, shifted, 0.1)
    assert footprint(stays, QUERIES).steps == running.steps
    assert footprint(stays, QUERIES).copies <= running.copies
    assert stays.switching == 0
    assert stays.cost > free.cost
    assert stays.bound == pytest.approx(stays.cost)
    switches = replan(before, shifted, 1e-4)
    assert switches.cost == pytest.approx(free.cost)
    assert switches.switching > 0
    # The charge is below the saving; otherwise the running plan would have stayed.
    assert switches.cost + switches.switching < stays.cost


def test_from_nothing_everything_is_charged() -> None:
    first = optimise(QUERIES, STATISTICS, Options(parallelism=4))
    charged = optimise(
        QUERIES, STATISTICS, Options(parallelism=4, switching=Switching(NOTHING, 0.5))
    )
    # Probes and inserts cost half as much again; a broadcast is charged as one step.
    assert charged.cost >= first.cost
    assert 0 < charged.switching <= 0.5 * charged.cost


@pytest.mark.parametrize("deadline", [0.0, 1e-9])
def test_limits_hold_whatever_the_deadline(deadline: float) -> None:
    problem = SmallProblem(QUERIES, STATISTICS, Objective.TUPLES, 4, mir=True)
    least = least_memory(problem, {})
    proven = plan_of(Demanded(problem, Limits(memory=least * 1.2, copies=2), None))
    plan = optimise(
        QUERIES,
        STATISTICS,
        Options(
            parallelism=4,
            limits=Limits(memory=least * 1.2, copies=2),
            deadline=Deadline(seconds=deadline),
        ),
    )
    validate_plan(plan, QUERIES)
    assert bytes_of(plan, problem.model, {}) <= least * 1.2
    assert plan.bound <= proven.cost <= plan.cost * (1 + 1e-9)
