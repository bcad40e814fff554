"""Tests of half-way joins, states and input paths of plans of any shape."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import PlannerError, StatisticsError
from benchmarks.papers.jaqpot.printed.plan import Join, Leaf, State, plan_of
from tests.benchmarks.papers.jaqpot.printed.plans import SHAPES, figure_10, random_plan

SOME = State(10, 0.1)


def test_productivities_of_half_way_joins() -> None:
    plan = figure_10()
    assert {n: h.productivity for n, h in plan.half_ways.items()} == {
        "a": 0.5, "b": 5.0, "ab": 5.0, "c": 1.0,
    }  # fmt: skip
    assert list(plan.joins) == ["ab", "abc"]
    assert [hop.name for hop in plan.hops["b"]] == ["b", "ab"]
    assert [hop.name for hop in plan.hops["c"]] == ["c"]


@given(st.integers(2, 12), st.sampled_from(SHAPES), st.integers(0, 10**6))
def test_there_are_two_stale_states_less_than_inputs(inputs: int, shape: str, seed: int) -> None:
    plan = random_plan(Random(seed), inputs, shape)
    assert len(plan.susceptible) == inputs - 2
    assert len(plan.half_ways) == 2 * len(plan.joins) == 2 * inputs - 2
    assert {hop.name for hops in plan.hops.values() for hop in hops} == set(plan.half_ways)


def test_shapes() -> None:
    linear = random_plan(Random(1), 6, "linear")
    assert sorted(len(hops) for hops in linear.hops.values()) == [1, 2, 3, 4, 5, 5]
    bushy = random_plan(Random(1), 8, "bushy")
    assert {len(hops) for hops in bushy.hops.values()} == {3}


def test_plans_may_be_deep() -> None:
    node: Leaf | Join = Leaf("0.", 1, SOME)
    for n in range(1, 3000):
        node = Join(node, Leaf(f"{n}.", 1, SOME), SOME if n < 2999 else None)
    assert isinstance(node, Join)
    assert len(plan_of(node).hops["0."]) == 2999


def test_states_where_they_belong() -> None:
    a, b, c = (Leaf(name, 1, SOME) for name in "abc")
    with pytest.raises(PlannerError, match="ab is the root's and has a state"):
        plan_of(Join(a, b, SOME))
    with pytest.raises(PlannerError, match="ab feeds another join") as caught:
        plan_of(Join(Join(a, b), c))
    assert caught.value.code == "bad-state"
    with pytest.raises(PlannerError, match="'a' names two nodes"):
        plan_of(Join(a, Join(b, a, SOME)))
    with pytest.raises(PlannerError, match="'ab' names two nodes"):
        plan_of(Join(Join(a, b, SOME), Leaf("ab", 1, SOME)))


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_figures_are_finite(value: float) -> None:
    with pytest.raises(StatisticsError, match="not a window"):
        State(value, 0.1)
    with pytest.raises(StatisticsError, match="not a rate"):
        Leaf("a", value, SOME)
    with pytest.raises(StatisticsError, match="not a share"):
        State(1, value)
