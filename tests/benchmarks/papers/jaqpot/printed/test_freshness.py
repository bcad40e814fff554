"""Tests that freshness predicates become refresh rates of states, or are reported
as unsatisfiable.
"""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import PlannerError
from benchmarks.papers.jaqpot.printed.freshness import (
    Cause,
    Infeasible,
    oldest,
    refresh_rates,
)
from benchmarks.papers.jaqpot.printed.paths import by_half_way, input_paths
from benchmarks.papers.jaqpot.printed.plan import Join, Leaf, Plan, State, plan_of
from tests.benchmarks.papers.jaqpot.printed.plans import SHAPES, figure_10, random_plan


def linear() -> Plan:
    """Return the linear plan ((a ⋈ b) ⋈ c) ⋈ d, whose windows are 10 s long; a and b make 20 pairs,
    40 triples a second.

    At saturation ab stays 5 s (100 / 20) and abc 2 s (120 / 60: c adds 20).
    """
    a, b = Leaf("a", 10, State(100, 0.01)), Leaf("b", 10, State(100, 0.01))
    ab = Join(a, b, State(100, 0.02))
    abc = Join(ab, Leaf("c", 10, State(100, 0.02)), State(120, 0.1))
    return plan_of(Join(abc, Leaf("d", 10, State(100, 0.1))))


def test_the_oldest_tuples_of_results() -> None:
    # Lemma 1: F >= S_a/10 + 100/λ_ab + 120/λ_abc.
    paths = input_paths(linear())
    found = oldest(paths, {"ab": 4, "abc": 6})
    assert found == {"a": 55, "b": 55, "c": 30, "d": 10}
    assert oldest(paths, {"ab": 4})["c"] == math.inf


def test_seconds_are_divided_evenly() -> None:
    paths = input_paths(linear())
    refresh = refresh_rates(paths, {"a": 27})
    # 27 - 10 - 5 - 2 leaves 10 s to distribute: ab may be 5 + 5 s old, abc 2 + 5 s.
    assert refresh.rates == pytest.approx({"ab": 10, "abc": 120 / 7})
    assert refresh.infeasible == ()


def test_what_one_predicate_may_not_use_another_may() -> None:
    paths = input_paths(linear())
    refresh = refresh_rates(paths, {"a": 27, "b": 30, "c": 13, "d": 10})
    # The predicate of c leaves 3 s to abc, so ab gets 14 of the 17 s of a.
    assert refresh.rates == pytest.approx({"ab": 100 / 14, "abc": 40})


def test_infeasible_predicates_are_named() -> None:
    paths = input_paths(linear())
    refresh = refresh_rates(paths, {"a": 16, "b": 27, "c": 13, "d": 9})
    assert refresh.infeasible == (
        Infeasible("a", "ab", Cause.MATCHES, 16, 17),
        Infeasible("d", "d", Cause.ARRIVALS, 9, 10),
    )
    assert refresh.rates == pytest.approx({"ab": 100 / 14, "abc": 40})
    assert str(refresh.infeasible[0]) == (
        "a: the state of ab has too few matches for 16 s of freshness; it takes 17 s, or a smaller "
        "window"
    )
    assert str(Infeasible("a", "ab", Cause.RESOURCES, 30, 45)) == (
        "a: to refresh the state of ab and others takes 45 probes per second; there are 30"
    )


def test_a_state_that_is_never_filled_keeps_nothing_fresh() -> None:
    a, b = Leaf("a", 10, State(100, 0)), Leaf("b", 10, State(100, 0))
    plan = plan_of(Join(Join(a, b, State(50, 0.1)), Leaf("c", 0, State(1, 0.1))))
    refresh = refresh_rates(input_paths(plan), {"a": 1e9, "c": 1e9})
    assert refresh.infeasible == (
        Infeasible("a", "ab", Cause.MATCHES, 1e9, math.inf),
        Infeasible("c", "c", Cause.ARRIVALS, 1e9, math.inf),
    )
    empty = plan_of(Join(Join(a, b, State(0, 0.1)), Leaf("c", 10, State(1, 0.1))))
    assert refresh_rates(input_paths(empty), {"a": 10}).infeasible == ()


@given(st.integers(2, 9), st.sampled_from(SHAPES), st.integers(0, 10**6))
def test_refresh_rates_keep_what_saturation_can(inputs: int, shape: str, seed: int) -> None:
    random = Random(seed)
    paths = input_paths(random_plan(random, inputs, shape))
    most = by_half_way(paths, {path.name: path.most for path in paths})
    ages = oldest(paths, most)
    predicates = {
        path.name: random.uniform(0.8, 4) * (ages[path.name] if ages[path.name] < math.inf else 9)
        for path in paths
        if random.random() < 0.8
    }
    refresh = refresh_rates(paths, predicates)
    broken = {name for name, given in predicates.items() if ages[name] > given * (1 + 1e-9)}
    assert {one.stream for one in refresh.infeasible} == broken
    assert all(one.needed == pytest.approx(ages[one.stream]) for one in refresh.infeasible)
    for state, rate in refresh.rates.items():
        assert 0 < rate <= most[state] * (1 + 1e-9)
    kept = oldest(paths, refresh.rates)
    for name in predicates.keys() - broken:
        assert kept[name] <= predicates[name] * (1 + 1e-9)


def test_predicates_are_of_inputs() -> None:
    for predicates in ({"x": 1.0}, {"a": -1.0}, {"a": math.nan}, {"a": math.inf}):
        with pytest.raises(PlannerError, match="give 0 or more seconds for an input"):
            refresh_rates(input_paths(figure_10()), predicates)
