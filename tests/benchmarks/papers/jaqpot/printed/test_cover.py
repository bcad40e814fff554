"""Tests of the cover of intermediate states' refresh rates: greedy, and by a linear program."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import PlannerError
from benchmarks.papers.jaqpot.printed.cover import greedy_cover
from benchmarks.papers.jaqpot.printed.exact import exact_cover
from benchmarks.papers.jaqpot.printed.paths import by_half_way, input_paths
from benchmarks.papers.jaqpot.printed.plan import Join, Leaf, State, plan_of
from tests.benchmarks.papers.jaqpot.printed.plans import SHAPES, figure_10, random_plan


def test_one_path_that_makes_more_is_enough() -> None:
    paths = input_paths(figure_10())
    # 50 tuples of b make 250 of ab; as many from a would need 500.
    for cover in (greedy_cover, exact_cover):
        assert cover(paths, {"ab": 250}) == pytest.approx({"a": 0, "b": 300, "c": 0})
        # b has 700 tuples that make 3500 of ab; a has to make the rest.
        assert cover(paths, {"ab": 3600}) == pytest.approx({"a": 300, "b": 4200, "c": 0})
        assert cover(paths, {}) == {"a": 0, "b": 0, "c": 0}
        with pytest.raises(PlannerError, match="no allocation refreshes this state") as caught:
            cover(paths, {"ab": 4000})
        assert caught.value.field == "ab"


@given(st.integers(3, 9), st.sampled_from(SHAPES), st.integers(0, 10**6))
def test_both_cover_and_greedy_costs_no_less(inputs: int, shape: str, seed: int) -> None:
    random = Random(seed)
    paths = input_paths(random_plan(random, inputs, shape))
    most = by_half_way(paths, {path.name: path.most for path in paths})
    rates = {
        hop.name: random.choice((0.001, 1.0, random.random())) * most[hop.name]
        for path in paths
        for hop in path.hops
        if hop.susceptible
    }
    costs = []
    for cover, tolerance in ((greedy_cover, 1e-8), (exact_cover, 1e-5)):
        found = cover(paths, rates)
        for path in paths:
            assert 0 <= found[path.name] <= path.most * (1 + 1e-9)
        taken = by_half_way(paths, found)
        for state, rate in rates.items():
            assert taken[state] >= rate * (1 - tolerance)
        costs.append(math.fsum(found.values()))
    greedy, exact = costs
    assert greedy >= exact * (1 - 1e-5)


def test_greedy_may_cost_more() -> None:
    # For a probe's cost, c refreshes abc by 10/11; a refreshes ab and abc by 1.1/2.1.
    a, b = Leaf("a", 1000, State(100, 0.01)), Leaf("b", 1000, State(100, 0.01))
    ab = Join(a, b, State(100, 0.1))
    abc = Join(ab, Leaf("c", 1000, State(100, 0.001)), State(100, 0.01))
    paths = input_paths(plan_of(Join(abc, Leaf("d", 1000, State(100, 0.01)))))
    rates = {"ab": 10.0, "abc": 1.0}
    # So c is chosen first, although the 10 tuples of a that ab needs make one of abc as well.
    assert greedy_cover(paths, rates) == pytest.approx({"a": 21, "b": 0, "c": 1.1, "d": 0})
    assert math.fsum(exact_cover(paths, rates).values()) == pytest.approx(21)
