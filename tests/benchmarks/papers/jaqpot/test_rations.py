"""Tests of the benchmark of rations in the runtime, at a tiny scale: shapes and counts, never
speed.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from anabranch_contract.plans.rations import Allocation
from anabranch_contract.plans.ruleset import Edge
from benchmarks.command import Benchmark
from benchmarks.papers.jaqpot.printed.plan import Join, Leaf, State, plan_of
from benchmarks.papers.jaqpot.printed.rivals import Rival, push, rival_allowances
from benchmarks.papers.jaqpot.rations import budgets, cost, forests
from benchmarks.papers.jaqpot.rations.expected import Expected
from benchmarks.papers.jaqpot.rations.policies import (
    EXACT,
    GREPP,
    POLICIES,
    RIVALS,
    Calibrated,
    optimum,
)
from benchmarks.papers.jaqpot.rations.random_forests import random_forest
from benchmarks.papers.jaqpot.rations.rivals import HalfWay, rival_shares, used
from benchmarks.papers.jaqpot.rations.runs import Division, Planned, plan_once, run
from benchmarks.papers.jaqpot.rations.workloads import WORKLOADS, selective
from benchmarks.session import WrongResultError
from tests.support.oracles.most_results import most_results
from tests.support.surroundings.redis import redis_url

SIZE, BATCHES = 0.02, 4


def options(benchmark: Benchmark, *arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    benchmark.options(parser)
    return parser.parse_args(arguments)


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with redis_url() as found:
        yield found


@pytest.fixture
def plan(tmp_path: Path, url: str) -> Planned:
    return plan_once(selective(SIZE, BATCHES), tmp_path, url)


@pytest.mark.parametrize("name", WORKLOADS)
def test_every_policy_keeps_what_its_rations_leave(name: str, tmp_path: Path) -> None:
    size = "0.005" if name == "tpch" else str(SIZE)
    given = ("--workloads", name, "--size", size, "--batches", "4", "--shares", "40", "--full", "1")
    entry = budgets.measure(options(budgets.BENCHMARK, *given), tmp_path)
    (one,) = entry["workloads"]
    assert one["workload"] == name
    assert sum(one["results"].values()) > 0
    assert set(one["policies"]) == set(POLICIES)
    for (row,) in one["policies"].values():
        assert row["share"] == 40
        assert 0 <= row["kept"] < 1
        assert 0 <= row["predicted"] < 1
    assert {name} == {grid.rows[0][0] for grid in budgets.tables(entry)[:2]}
    assert all(len(r) == len(grid.head) for grid in budgets.tables(entry) for r in grid.rows)
    assert budgets.charts(entry)[f"jaqpot-measured-{name}"].startswith("<svg")


def test_all_runs_have_one_plan_and_all_results_without_rations(
    plan: Planned, tmp_path: Path, url: str
) -> None:
    found = run(plan, tmp_path / "full", url, Division())
    known = Calibrated(plan, found.interim)
    expected = Expected(plan, known.goals)
    expected.check(tmp_path / "full" / "results", found, Division())
    assert dict(found.results) == expected.counts
    assert not found.interim.rationed
    # Each start has a path through all other streams, without intermediate results.
    assert len(known.halves) == 12
    assert len(known.goals) == 4
    assert {half.members for half in known.halves} == {2, 3, 4}
    assert known.forest.full == pytest.approx(used(known.halves, dict.fromkeys(_edges(known), 1.0)))
    again = run(plan, tmp_path / "again", url, Division())
    assert [one.counts.made for one in again.interim.steps] == [
        one.counts.made for one in found.interim.steps
    ]


def _edges(known: Calibrated) -> list[Edge]:
    return [half.edge for half in known.halves]


def test_other_results_are_noticed(plan: Planned, tmp_path: Path, url: str) -> None:
    found = run(plan, tmp_path / "full", url, Division())
    known = Calibrated(plan, found.interim)
    expected = Expected(plan, known.goals)
    division = known.division(RIVALS[0], 0.5)
    with pytest.raises(WrongResultError):
        # Nothing was withheld in this run.
        expected.check(tmp_path / "full" / "results", found, division)
    rationed = known.division(Allocation.RESULTS.value, 0.5)
    kept = run(plan, tmp_path / "kept", url, rationed)
    expected.check(tmp_path / "kept" / "results", kept, rationed)
    assert sum(kept.results.values()) < sum(found.results.values())
    wrong = replace(kept, results={name: n + 1 for name, n in kept.results.items()})
    with pytest.raises(WrongResultError):
        expected.check(tmp_path / "kept" / "results", wrong, rationed)


@pytest.mark.parametrize("rival", Rival)
def test_the_rivals_of_two_streams_are_those_of_the_paper(rival: Rival) -> None:
    # Over two streams, probe trees and binary plans are the same. A probe costs one.
    a, b = Leaf("a", 30, State(100, 0.04)), Leaf("b", 70, State(50, 0.04))
    printed = plan_of(Join(a, b))
    halves = tuple(
        HalfWay(Edge(half.name), None, "ab", 2, rate, rate * half.productivity, half.selectivity)
        for half in printed.half_ways.values()
        for rate in [half.rate or 0.0]
    )
    for mu in (10.0, 40.0, 90.0):
        shares = rival_shares(halves, mu, rival)
        flow = push(printed, rival_allowances(printed, mu, rival))
        made = {half.edge: shares[half.edge] * half.made for half in halves}
        assert sum(made.values()) == pytest.approx(flow.output)
        assert used(halves, shares) == pytest.approx(sum(flow.probes.values()))


@pytest.mark.parametrize("rival", Rival)
def test_limits_fall_along_a_path(rival: Rival) -> None:
    halves = (
        HalfWay(Edge("a>b"), None, "ab", 2, 10.0, 50.0, 0.1),
        HalfWay(Edge("b>a"), None, "ab", 2, 20.0, 40.0, 0.2),
        HalfWay(Edge("a>b>c"), Edge("a>b"), "abc", 3, 100.0, 5.0, 0.01),
        HalfWay(Edge("b>a>c"), Edge("b>a"), "abc", 3, 80.0, 9.0, 0.02),
    )
    for mu in (0.0, 20.0, 100.0, 200.0, 500.0):
        shares = rival_shares(halves, mu, rival)
        assert used(halves, shares) <= mu + 1e-9
        for half in halves:
            most = 1.0 if half.parent is None else shares[half.parent]
            assert 0 <= shares[half.edge] <= most
    # Four half-way joins get a quarter each; the first ones can't use all of it.
    if rival is Rival.EQUAL_HJ:
        assert rival_shares(halves, 200.0, rival) == {
            "a>b": 1.0,
            "b>a": 1.0,
            "a>b>c": 0.5,
            "b>a>c": 0.625,
        }


def test_the_linear_program_agrees_with_the_increments() -> None:
    rng = Random(9)
    for _ in range(40):
        forest = random_forest(rng, steps=20, goals=10)
        budget = rng.random() * forest.full
        exact, ours = optimum(forest, budget), most_results(forest, budget)
        assert forest.used(exact) <= budget + 1e-6 * (forest.full or 1.0)
        assert forest.output(exact) == pytest.approx(forest.output(ours), rel=1e-5, abs=1e-6)


def test_grepp_is_never_ahead_over_random_forests(tmp_path: Path) -> None:
    entry: dict[str, Any] = forests.measure(options(forests.BENCHMARK, "--forests", "40"), tmp_path)
    assert [one["share"] for one in entry["budgets"]] == list(forests.SHARES)
    for one in entry["budgets"]:
        assert 0 < one["of"] <= entry["drawn"]
        assert 1 - 1e-4 <= one["least"] <= one["quantiles"][2] <= one["most"]
    assert forests.tables(entry)[0].rows


def test_the_cost_of_the_policy_is_taken_from_pairs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cost, "WARM", 2)
    monkeypatch.setattr(cost, "CALIBRATING", 3)
    monkeypatch.setattr(cost, "EDGES", (30,))
    given = options(cost.BENCHMARK, "--pairs", "4", "--size", "0.1")
    entry = cost.measure(given, tmp_path)
    found = entry["batches"]
    assert found["pairs"] == 4
    assert found["low"] <= found["ratio"] <= found["high"]
    assert entry["planning"][0]["edges"] >= 28
    assert all(len(row) == len(grid.head) for grid in cost.tables(entry) for row in grid.rows)


def test_grepp_pays_paths_alone(plan: Planned, tmp_path: Path, url: str) -> None:
    known = Calibrated(plan, run(plan, tmp_path / "full", url, Division()).interim)
    # One query's paths share no steps here, so GrePP is optimal.
    for capacity in (0.2, 0.7):
        one, other = (known.shares(policy, capacity) for policy in (GREPP, EXACT))
        assert known.forest.output(one) == pytest.approx(known.forest.output(other), rel=1e-6)
