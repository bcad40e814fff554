"""Tests of GrePP: the paper's examples, and comparisons with a linear program and all rivals."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Solver
from anabranch_planner.solvers.interface import Request, SolveStatus
from anabranch_planner.solvers.registry import solve
from benchmarks.papers.jaqpot.printed.grepp import grepp
from benchmarks.papers.jaqpot.printed.paths import (
    by_half_way,
    input_paths,
    saturation,
    throughput,
)
from benchmarks.papers.jaqpot.printed.rivals import Rival, push, rival_allowances
from tests.benchmarks.papers.jaqpot.printed.plans import (
    SHAPES,
    figure_4,
    figure_10,
    flow_program,
    random_plan,
)


def test_figure_4() -> None:
    paths = input_paths(figure_4())
    found = grepp(paths, 30)
    assert found == {"a": 0, "b": 30, "c": 0}
    assert throughput(paths, found) == pytest.approx(9.375)
    assert by_half_way(paths, found) == pytest.approx({"a": 0, "b": 20.625, "ab": 9.375, "c": 0})


def test_figure_10() -> None:
    plan = figure_10()
    paths = input_paths(plan)
    found = grepp(paths, 300)
    assert by_half_way(paths, found) == {"a": 0, "b": 50, "ab": 250, "c": 0}
    assert throughput(paths, found) == pytest.approx(1250)


def test_a_path_gets_no_more_than_its_arrivals_use() -> None:
    paths = input_paths(figure_4(rate=11))
    found = grepp(paths, 30)
    assert found == pytest.approx({"a": 14, "b": 16, "c": 0})
    assert grepp(paths, 30, used={"b": 10}) == pytest.approx({"a": 15, "b": 6, "c": 9})
    assert sum(grepp(paths, 1e9).values()) == pytest.approx(saturation(paths)[0])


@given(st.integers(2, 9), st.sampled_from(SHAPES), st.integers(0, 10**6), st.floats(0, 1.1))
def test_no_allowances_are_better(inputs: int, shape: str, seed: int, share: float) -> None:
    plan = random_plan(Random(seed), inputs, shape)
    paths = input_paths(plan)
    mu = share * saturation(paths)[0]
    found = grepp(paths, mu)
    assert sum(found.values()) <= mu * (1 + 1e-12) + 1e-12
    output = throughput(paths, found)
    best = solve(Solver.HIGHS, Request(flow_program(plan, mu)))
    assert best.status is SolveStatus.OPTIMAL
    assert output == pytest.approx(-best.bound, rel=1e-5, abs=1e-5)
    for rival in Rival:
        allowances = rival_allowances(plan, mu, rival)
        assert sum(allowances.values()) <= mu * (1 + 1e-12) + 1e-12
        assert push(plan, allowances).output <= output * (1 + 1e-9) + 1e-9


def test_resources_are_not_negative() -> None:
    for mu in (-1.0, float("nan")):
        with pytest.raises(PlannerError, match="probes per second"):
            grepp(input_paths(figure_10()), mu)
