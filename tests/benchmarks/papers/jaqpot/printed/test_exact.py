"""Compare the exact maximum of throughput under freshness predicates with JAQPOT's Algorithm 1."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.jaqpot.printed.exact import (
    cheapest_freshness,
    exact_cover,
    exact_throughput,
)
from benchmarks.papers.jaqpot.printed.freshness import oldest, refresh_rates
from benchmarks.papers.jaqpot.printed.grepp import grepp
from benchmarks.papers.jaqpot.printed.jaqpot import jaqpot
from benchmarks.papers.jaqpot.printed.paths import (
    by_half_way,
    input_paths,
    saturation,
    throughput,
)
from benchmarks.papers.jaqpot.printed.plan import Join, Leaf, State, plan_of
from tests.benchmarks.papers.jaqpot.printed.plans import SHAPES, random_plan


@given(st.integers(2, 9), st.sampled_from(SHAPES), st.integers(0, 10**6), st.floats(0.01, 1))
def test_no_cover_leaves_more_throughput(inputs: int, shape: str, seed: int, share: float) -> None:
    random = Random(seed)
    paths = input_paths(random_plan(random, inputs, shape, zeros=False))
    mu = share * saturation(paths)[0]
    predicates = {
        path.name: random.uniform(1, 9) * math.fsum(hop.window for hop in path.hops)
        for path in paths
    }
    found = jaqpot(paths, mu, predicates)
    best = exact_throughput(paths, mu, found.rates)
    assert best is not None
    taken = by_half_way(paths, best)
    for state, rate in found.rates.items():
        assert taken[state] >= rate * (1 - 1e-5)
    assert math.fsum(best.values()) <= mu * (1 + 1e-5)
    most = throughput(paths, best)
    assert throughput(paths, found.resources) <= most * (1 + 1e-5)
    if not found.rates:
        assert most == pytest.approx(throughput(paths, grepp(paths, mu)), rel=1e-5)


def test_too_few_resources_for_any_cover() -> None:
    paths = input_paths(random_plan(Random(3), 5, "any", zeros=False))
    most = by_half_way(paths, {path.name: path.most for path in paths})
    rates = {hop.name: most[hop.name] / 2 for path in paths for hop in path.hops if hop.susceptible}
    least = math.fsum(exact_cover(paths, rates).values())
    assert exact_throughput(paths, least * 0.99, rates) is None
    assert exact_throughput(paths, least * 1.01, rates) is not None


def test_seconds_are_divided_as_is_cheapest() -> None:
    # One path refreshes both states of a linear plan: a tuple of a makes 1 of ab and 2 of abc.
    a, b = Leaf("a", 100, State(100, 0.01)), Leaf("b", 100, State(100, 0.01))
    ab = Join(a, b, State(100, 0.01))
    abc = Join(ab, Leaf("c", 100, State(100, 0.02)), State(100, 0.01))
    paths = input_paths(plan_of(Join(abc, Leaf("d", 100, State(100, 0.01)))))
    predicates = {"a": 7.0}
    # 1 s in a's own window; the other 6 s are 100/x + 100/2x for x = 25 tuples, of 1 + 1 + 2 probes
    # each.
    least = cheapest_freshness(paths, predicates)
    assert math.fsum(least.values()) == pytest.approx(100, rel=1e-3)
    # Distributed evenly above the 0.5 s and 0.2 s at saturation, ab has 3.15 s: 31.7 tuples a
    # second.
    even = exact_cover(paths, refresh_rates(paths, predicates).rates)
    assert math.fsum(even.values()) > 110


@given(st.integers(3, 6), st.sampled_from(SHAPES), st.integers(0, 10**6))
def test_no_division_costs_less(inputs: int, shape: str, seed: int) -> None:
    random = Random(seed)
    paths = input_paths(random_plan(random, inputs, shape, zeros=False))
    most = by_half_way(paths, {path.name: path.most for path in paths})
    ages = oldest(paths, most)
    predicates = {path.name: random.uniform(1.1, 6) * ages[path.name] for path in paths}
    found = cheapest_freshness(paths, predicates)
    least = math.fsum(found.values())
    now = oldest(paths, by_half_way(paths, found))
    for path in paths:
        assert 0 <= found[path.name] <= path.most * (1 + 1e-9)
        assert now[path.name] <= predicates[path.name] * (1 + 2e-4)
    even = refresh_rates(paths, predicates)
    assert not even.infeasible
    assert least <= math.fsum(exact_cover(paths, even.rates).values()) * (1 + 1e-5)
    # Raise and lower random rates until some predicate just holds.
    for _ in range(20):
        rates = {
            state: min(rate * random.uniform(0.5, 2), most[state])
            for state, rate in even.rates.items()
        }
        kept = oldest(paths, rates)
        if all(kept[name] <= seconds for name, seconds in predicates.items()):
            cost = math.fsum(exact_cover(paths, rates).values())
            assert least <= cost * (1 + 1e-5)


def test_what_can_not_be_kept_costs_nothing() -> None:
    paths = input_paths(random_plan(Random(3), 5, "any", zeros=False))
    assert set(cheapest_freshness(paths, {paths[0].name: 0.0}).values()) == {0.0}
    assert set(cheapest_freshness(paths, {}).values()) == {0.0}
