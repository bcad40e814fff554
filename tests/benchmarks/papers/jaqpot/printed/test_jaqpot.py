"""Tests of JAQPOT's Algorithm 1: promised freshness predicates hold, others are named, no budget is
spent twice.
"""

from __future__ import annotations

import math
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.papers.jaqpot.printed.cover import greedy_cover
from benchmarks.papers.jaqpot.printed.exact import exact_cover
from benchmarks.papers.jaqpot.printed.freshness import Cause, Infeasible, oldest
from benchmarks.papers.jaqpot.printed.grepp import grepp
from benchmarks.papers.jaqpot.printed.jaqpot import Cover, jaqpot
from benchmarks.papers.jaqpot.printed.paths import (
    by_half_way,
    input_paths,
    saturation,
    throughput,
)
from benchmarks.papers.jaqpot.printed.rivals import push
from tests.benchmarks.papers.jaqpot.printed.plans import SHAPES, figure_10, random_plan


def test_cover_first_then_throughput() -> None:
    paths = input_paths(figure_10())
    # The window of b takes 500/700 s; tuples of ab may be 4 s old: 200 / 4 = 50 a second, by 10 of
    # b.
    found = jaqpot(paths, 300, {"b": 500 / 700 + 4})
    assert found.rates == pytest.approx({"ab": 50})
    assert found.cover == pytest.approx({"a": 0, "b": 60, "c": 0})
    assert found.for_freshness == pytest.approx(60)
    assert found.rest == pytest.approx({"a": 0, "b": 240, "c": 0})
    assert throughput(paths, found.resources) == pytest.approx(1250)


def test_too_few_probes_are_reported() -> None:
    paths = input_paths(figure_10())
    found = jaqpot(paths, 30, {"a": 20, "b": 500 / 700 + 4, "c": 9})
    assert found.rates == {}
    assert found.for_freshness == 0
    assert found.resources == grepp(paths, 30)
    needed = found.infeasible[0].needed
    assert needed == pytest.approx(60)
    assert found.infeasible == (
        Infeasible("a", "ab", Cause.RESOURCES, 30, needed),
        Infeasible("b", "ab", Cause.RESOURCES, 30, needed),
    )


@given(
    st.integers(2, 9),
    st.sampled_from(SHAPES),
    st.integers(0, 10**6),
    st.floats(0, 1.1),
    st.sampled_from((greedy_cover, exact_cover)),
)
def test_promises_are_kept(inputs: int, shape: str, seed: int, share: float, cover: Cover) -> None:
    random = Random(seed)
    plan = random_plan(random, inputs, shape)
    paths = input_paths(plan)
    mu = share * saturation(paths)[0]
    predicates = {
        path.name: random.uniform(0.5, 9) * math.fsum(hop.window for hop in path.hops)
        for path in paths
    }
    found = jaqpot(paths, mu, predicates, cover)
    resources = found.resources
    assert math.fsum(resources.values()) <= mu * (1 + 1e-8)
    for path in paths:
        assert resources[path.name] <= path.most * (1 + 1e-8)
    assert math.fsum(resources.values()) == pytest.approx(min(mu, saturation(paths)[0]))
    flow = push(plan, by_half_way(paths, resources))
    assert flow.output == pytest.approx(throughput(paths, resources))
    ages = oldest(paths, flow.probes)
    broken = {one.stream for one in found.infeasible}
    for name, seconds in predicates.items():
        assert name in broken or ages[name] <= seconds * (1 + 1e-5)
    assert all(one.needed > one.given for one in found.infeasible)
    if not predicates.keys() - broken:
        assert resources == pytest.approx(grepp(paths, mu))
