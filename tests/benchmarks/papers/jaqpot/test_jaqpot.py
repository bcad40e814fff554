"""Tests of the simulation of JAQPOT at a tiny scale, and of its samplers against closed forms."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

import numpy as np
import pytest

from benchmarks.papers.jaqpot import report, simulation
from benchmarks.papers.jaqpot.ages import stale_share
from benchmarks.papers.jaqpot.changes import simulate
from benchmarks.papers.jaqpot.plans import (
    JOINS,
    RATES,
    SELECTIVITIES,
    WINDOWS,
    Shape,
    draw,
    predicates,
    random_tree,
    selectivities,
)
from benchmarks.papers.jaqpot.policies import POLICIES, allowances
from benchmarks.papers.jaqpot.printed.freshness import oldest
from benchmarks.papers.jaqpot.printed.jaqpot import jaqpot
from benchmarks.papers.jaqpot.printed.paths import by_half_way, input_paths, saturation
from benchmarks.papers.jaqpot.printed.plan import Join, Leaf, Plan, State, plan_of
from benchmarks.papers.jaqpot.printed.rivals import push
from benchmarks.papers.jaqpot.rations import budgets, forests
from benchmarks.papers.jaqpot.rations.command import run_part


def plan_for(shape: Shape, seed: int) -> Plan:
    random = Random(seed)
    return draw(random, shape, selectivities(random, shape))


@pytest.mark.parametrize("shape", Shape)
def test_plans_are_within_table_3(shape: Shape) -> None:
    plan = plan_for(shape, 1)
    assert len(plan.joins) == JOINS[shape]
    for leaf in plan.leaves:
        assert RATES[0] <= leaf.rate <= RATES[1]
    for half in plan.half_ways.values():
        assert WINDOWS[0] <= half.window <= WINDOWS[1]
        assert SELECTIVITIES[0] <= half.selectivity <= SELECTIVITIES[1]
    for left, right in plan.joins.values():
        assert left.selectivity == right.selectivity
    assert plan == plan_for(shape, 1) != plan_for(shape, 2)
    assert len(random_tree(Random(1), 9).leaves) == 9


@pytest.mark.parametrize("policy", POLICIES)
def test_no_policy_has_more_than_there_is(policy: str) -> None:
    for shape in Shape:
        plan = plan_for(shape, 3)
        paths = input_paths(plan)
        mu = 0.4 * saturation(paths)[0]
        found = allowances(plan, paths, mu, policy, predicates(plan, 3))
        assert sum(found.values()) <= mu * (1 + 1e-9)


def test_poisson_arrivals_have_the_rates_of_the_model() -> None:
    # Allowances below the arrival rates are used up each second; matches vary around their mean.
    plan = plan_for(Shape.LINEAR, 4)
    paths = input_paths(plan)
    allowed = by_half_way(paths, {path.name: 0.3 * path.most for path in paths})
    found = simulate(plan, allowed, 500, np.random.default_rng(1)) / 500
    assert found == pytest.approx(push(plan, allowed).output, rel=0.03)
    # If fewer tuples than the allowance may arrive in a second, some of it is lost.
    everything = by_half_way(paths, {path.name: path.most for path in paths})
    full = push(plan, everything).output
    found = simulate(plan, everything, 500, np.random.default_rng(1)) / 500
    assert 0.9 * full < found < full


def two_way() -> Plan:
    a, b = Leaf("a", 10, State(100, 0.1)), Leaf("b", 20, State(100, 0.02))
    return plan_of(Join(a, b))


def test_the_stale_share_of_two_streams() -> None:
    # A probe by b has 10 results, with tuples of a up to 10 s old; a probe by a has 2, up to 5 s.
    plan = two_way()
    flow = push(plan, {"a": 10, "b": 20})
    random = np.random.default_rng(1)
    found = stale_share(plan, flow, {"a": 4}, random, 40_000)
    assert found == pytest.approx(200 / 220 * 0.6, abs=0.01)
    found = stale_share(plan, flow, {"a": 4, "b": 1}, random, 40_000)
    assert found == pytest.approx(200 / 220 * 0.6 + 20 / 220 * 0.8, abs=0.01)
    assert stale_share(plan, flow, {"a": 10, "b": 5}, random, 1000) == 0
    assert stale_share(plan, push(plan, {}), {"a": 10}, random, 1000) is None


def test_the_stale_share_behind_a_state() -> None:
    # ab receives 10 tuples a second and keeps them for 10 s; only c probes, so a is as old as in
    # ab, and b has waited for a before: up to 5 s in its own state.
    a, b = Leaf("a", 10, State(100, 0)), Leaf("b", 20, State(100, 0.01))
    plan = plan_of(Join(Join(a, b, State(100, 0.1)), Leaf("c", 10, State(10, 0))))
    flow = push(plan, {"a": 10, "ab": 10, "c": 10})
    random = np.random.default_rng(1)
    assert flow.probes["ab"] == 10
    assert stale_share(plan, flow, {"a": 7}, random, 40_000) == pytest.approx(0.3, abs=0.01)
    # Sum of two uniform ages: beyond 12.5 of 15 s is a triangle of 2.5 by 2.5 in a rectangle of 10
    # by 5.
    found = stale_share(plan, flow, {"b": 12.5}, random, 40_000)
    assert found == pytest.approx(2.5 * 2.5 / 2 / 50, abs=0.01)
    starved = push(plan, {"a": 10, "c": 10})
    assert stale_share(plan, starved, {"a": 1e9}, random, 100) == 1


@pytest.mark.parametrize("shape", Shape)
def test_promised_results_are_never_stale(shape: Shape) -> None:
    promised = 0
    for seed in range(5):
        plan = plan_for(shape, seed)
        paths, freshness = input_paths(plan), predicates(plan, 1.5)
        found = jaqpot(paths, 0.3 * saturation(paths)[0], freshness)
        if found.infeasible:
            continue
        promised += 1
        flow = push(plan, by_half_way(paths, found.resources))
        assert stale_share(plan, flow, freshness, np.random.default_rng(seed), 3000) == 0
        ages = oldest(paths, flow.probes)
        assert all(ages[stream] <= freshness[stream] * (1 + 1e-9) for stream in freshness)
    assert promised


def test_the_simulation_repeats(capsys: pytest.CaptureFixture[str]) -> None:
    found = []
    for _ in range(2):
        assert simulation.main(["--json", "--seeds", "2"]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert len(lines) == 1
        found.append(json.loads(lines[0]))
    for part in ("throughput", "changes", "freshness"):
        assert found[0][part] == found[1][part]
    assert found[0]["decisions"]["exact"] == found[1]["decisions"]["exact"]
    grids = simulation.tables(found[0])
    assert grids[0].title == "targets"
    assert all(len(row) == len(grid.head) for grid in grids for row in grid.rows)
    linear = found[0]["throughput"][0]["results"]
    assert linear["GrePP"][-1]["mean"] == pytest.approx(1)
    for policy in POLICIES:
        for place, figures in enumerate(linear[policy]):
            assert figures["high"] <= linear["GrePP"][place]["high"] + 1e-4


def test_the_page_has_all_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "benchmarks").mkdir()
    assert report.main(["--docs", str(tmp_path)]) == 1
    assert simulation.main(["--json", "--seeds", "1"]) == 0
    (tmp_path / "benchmarks" / "jaqpot.jsonl").write_text(capsys.readouterr().out)
    assert report.main(["--docs", str(tmp_path)]) == 0
    text = (tmp_path / "benchmarks-jaqpot.md").read_text()
    assert all(f"## {heading}" in text for heading in report.HEADINGS.values())
    for chart in ("jaqpot-linear", "jaqpot-bushy", "jaqpot-stale"):
        assert f"benchmarks/{chart}.svg" in text
        assert (tmp_path / "benchmarks" / f"{chart}.svg").is_file()
    assert report.main(["--docs", str(tmp_path)]) == 0
    assert (tmp_path / "benchmarks-jaqpot.md").read_text() == text


def test_the_page_has_what_was_measured(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "benchmarks").mkdir()
    few = ["--json", "--workloads", "results", "--size", "0.02", "--batches", "3", "--full", "1"]
    assert run_part(budgets.BENCHMARK, [*few, "--shares", "50"]) == 0
    assert run_part(forests.BENCHMARK, ["--json", "--forests", "20"]) == 0
    saved = tmp_path / "benchmarks" / "jaqpot.jsonl"
    saved.write_text(capsys.readouterr().out)
    assert report.main(["--docs", str(tmp_path)]) == 0
    text = (tmp_path / "benchmarks-jaqpot.md").read_text()
    for part in ("budgets", "forests"):
        assert f"## {report.MEASURED[part][0]}" in text
    assert "| measured, results: results, times the optimum's, least | ≥ 0.95 |" in text
    assert (tmp_path / "benchmarks" / "jaqpot-measured-results.svg").is_file()


def test_tables_are_shown(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulation.main(["--seeds", "1"]) == 0
    assert "stale results" in capsys.readouterr().out
