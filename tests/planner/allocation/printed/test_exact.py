"""The most throughput under freshness, decided at once, against Algorithm 1."""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_planner.allocation.printed.exact import exact_cover, exact_throughput
from anabranch_planner.allocation.printed.grepp import grepp
from anabranch_planner.allocation.printed.jaqpot import jaqpot
from anabranch_planner.allocation.printed.paths import (
    by_half_way,
    input_paths,
    saturation,
    throughput,
)
from tests.planner.allocation.printed.plans import SHAPES, random_plan


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
