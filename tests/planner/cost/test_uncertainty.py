"""Tests of the range of a plan's cost if statistics had to be assumed."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.cost.uncertainty import SPREAD, CostRange, cost_range
from anabranch_planner.cost.validate import cost_of
from anabranch_planner.passes import optimise
from anabranch_planner.plans.optimise import Options
from tests.support.cases.queries import chain, given_statistics

QUERY = chain("R.a=S.a", "S.b=T.b")


def test_a_plan_by_known_statistics_has_one_cost() -> None:
    sizes = dict.fromkeys("RST", 100.0)
    statistics = given_statistics(sizes, selectivity_default=0.01)
    plan = optimise([QUERY], statistics, Options())
    found = cost_range(plan, [QUERY], statistics)
    assert found == CostRange(found.low, found.low)
    assert found.low == pytest.approx(plan.cost)


def test_a_plan_by_no_statistics_has_a_wide_range() -> None:
    plan = optimise([QUERY], Statistics(), Options())
    found = cost_range(plan, [QUERY], Statistics())
    # All joins are as large as one relation, or, with few distinct values, ten times as large each.
    assert found.low == pytest.approx(plan.cost / SPREAD)
    assert found.high > plan.cost * SPREAD


@given(
    st.dictionaries(st.sampled_from("RST"), st.floats(100, 10_000), max_size=3),
    st.dictionaries(
        st.sampled_from([("R", "a"), ("S", "a"), ("S", "b"), ("T", "b")]),
        st.floats(10, 100),
        max_size=4,
    ),
    st.dictionaries(st.sampled_from("RST"), st.floats(1 / SPREAD, SPREAD), max_size=3),
)
def test_the_true_cost_is_in_range_if_assumptions_are(
    cardinalities: dict[str, float],
    distincts: dict[tuple[str, str], float],
    off: dict[str, float],
) -> None:
    known = given_statistics(cardinalities=cardinalities, distincts=distincts)
    plan = optimise([QUERY], known, Options())
    found = cost_range(plan, [QUERY], known)
    assert found.low <= plan.cost * (1 + 1e-9)
    assert plan.cost <= found.high * (1 + 1e-9)
    truth = given_statistics(
        cardinalities={r: cardinalities.get(r, 1000 * off.get(r, 1.0)) for r in "RST"},
        distincts=distincts,
    )
    assert found.low <= cost_of(plan, [QUERY], truth) * (1 + 1e-9)
    assert cost_of(plan, [QUERY], truth) <= found.high * (1 + 1e-9)
