"""Tests of paths' productivity against the digits printed in the paper."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import PlannerError, StatisticsError
from benchmarks.papers.jaqpot.printed.paths import (
    Row,
    by_half_way,
    input_paths,
    productivity_table,
    saturation,
    throughput,
)
from benchmarks.papers.jaqpot.printed.plan import Join, Leaf, State, plan_of
from benchmarks.papers.jaqpot.printed.rivals import push
from tests.benchmarks.papers.jaqpot.printed.plans import SHAPES, figure_4, figure_10, random_plan


def test_table_2() -> None:
    table = productivity_table(input_paths(figure_4()))
    assert table == (Row("a", 15, 4, 2), Row("b", 16, 5, 2), Row("c", 10, 1, 3))
    assert [row.productivity for row in table] == pytest.approx([4 / 15, 0.3125, 0.1])
    paths = input_paths(figure_4())
    assert [path.productivity for path in paths] == pytest.approx([4 / 15, 0.3125, 0.1])
    assert paths[0].allowances(15) == pytest.approx((11, 4))


def test_a_path_is_divided_so_that_nothing_is_lost() -> None:
    a, b, c = input_paths(figure_10())
    assert b.allowances(600) == (100, 500)
    # (sigma_C S_C) (sigma_B S_B) / (1 + sigma_B S_B)
    assert a.productivity == pytest.approx(5 * 0.5 / 1.5)
    assert c.phi == (1, 1)
    assert c.most == 500


@given(st.integers(2, 9), st.sampled_from(SHAPES), st.integers(0, 10**6))
def test_producers_match_consumers(inputs: int, shape: str, seed: int) -> None:
    random = Random(seed)
    plan = random_plan(random, inputs, shape)
    paths = input_paths(plan)
    resources = {path.name: random.random() * path.most for path in paths}
    allowances = by_half_way(paths, resources)
    assert sum(allowances.values()) == pytest.approx(sum(resources.values()))
    flow = push(plan, allowances)
    assert dict(flow.probes) == pytest.approx(allowances)
    assert flow.output == pytest.approx(throughput(paths, resources))
    for join, made in flow.made.items():
        if join in plan.half_ways:
            assert made == pytest.approx(flow.probes[join])


@given(st.integers(2, 9), st.sampled_from(SHAPES), st.integers(0, 10**6))
def test_saturation_is_the_whole_workload(inputs: int, shape: str, seed: int) -> None:
    plan = random_plan(Random(seed), inputs, shape)
    flow = push(plan, dict.fromkeys(plan.half_ways, float("inf")))
    resources, output = saturation(input_paths(plan))
    assert resources == pytest.approx(sum(flow.probes.values()))
    assert output == pytest.approx(flow.output)


def test_productivities_that_are_no_simple_fractions_have_no_table() -> None:
    plan = random_plan(Random(2), 4, "linear", zeros=False)
    with pytest.raises(PlannerError, match="whole numbers of matches") as caught:
        productivity_table(input_paths(plan))
    assert caught.value.code == "fractional-table"


def test_results_without_number_are_refused() -> None:
    node: Leaf | Join = Leaf("0.", 1, State(1e9, 1))
    for n in range(1, 40):
        node = Join(node, Leaf(f"{n}.", 1, State(1e9, 1)), State(1, 1) if n < 39 else None)
    assert isinstance(node, Join)
    with pytest.raises(StatisticsError, match="more results than a number can hold"):
        input_paths(plan_of(node))
