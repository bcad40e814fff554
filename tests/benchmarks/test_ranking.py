"""Tests of the benchmark that compares plans' prices with CPU time: counts, shapes and scores,
never speed.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from anabranch_planner.cost.statistics.constants import OPERATIONS, CostConstants
from benchmarks import cost_constants
from benchmarks.cost_constants import ALIKE, COUNTS, whole_batches
from benchmarks.ranking import plans, report
from benchmarks.ranking.runs import Done
from benchmarks.ranking.scores import regret, tau


@pytest.fixture(scope="module")
def entry(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    parser = argparse.ArgumentParser()
    plans.BENCHMARK.options(parser)
    small = ["--rows", "400", "--batches", "13", "--scale", "0", "--ds-scale", "0"]
    options = parser.parse_args([*small, "--rounds", "1", "--most", "3"])
    return plans.measure(options, tmp_path_factory.mktemp("ranking"))


@pytest.mark.slow
def test_plans_differ_and_are_counted(entry: dict[str, Any]) -> None:
    names = [one["workload"] for one in entry["workloads"]]
    assert names == ["one key", "chain", "star, 100 rows", "uniform"]
    for one in entry["workloads"]:
        counts = [plan["counts"] for plan in one["plans"]]
        assert len({json.dumps(c) for c in counts}) == len(counts) > 1
        assert {c["arrived"] for c in counts} == {12 * 400}
        assert len({c["results"] for c in counts}) == 1
        for plan in one["plans"]:
            # Each relation is stored once; merges rewrite most rows of twelve batches.
            assert plan["counts"]["rows"] >= 12 * 400
            assert bool(plan["mirs"]) == (plan["counts"]["rows"] > 12 * 400)
            assert 0 < plan["counts"]["rewritten"] <= 13 / 12 * plan["counts"]["rows"]
            prices = plan["expected"]
            assert prices["tuples"] < prices["tuples and merges"]
            assert prices["seconds, fitted"] < prices["seconds and merges, fitted"]
            assert plan["by_counts"]["tuples"] == plan["counts"]["probes"] + plan["counts"]["rows"]


@pytest.mark.slow
def test_the_report_says_what_follows(entry: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "benchmarks").mkdir()
    about = {
        "benchmark": "ranking", "part": "plans", "at": "2026-01-01T00:00:00Z", "commit": "0" * 40,
        "changed": False, "versions": {"python": "3.11"}, "settings": {"rows": 400},
        "machine": {"cpus": 2, "memory_gib": 1.0, "system": "Linux"},
        "load": {"before": [0, 0, 0], "after": [0, 0, 0]},
    }  # fmt: skip
    saved = tmp_path / "benchmarks" / "ranking.jsonl"
    saved.write_text(json.dumps(about | entry) + "\n", encoding="utf-8")
    assert report.main(["--docs", str(tmp_path)]) == 0
    page = (tmp_path / "benchmarks-ranking.md").read_text(encoding="utf-8")
    count = sum(len(one["plans"]) for one in entry["workloads"])
    assert f"Over {count} plans of 4 workloads" in page
    for price in plans.PRICES:
        assert f"| {price.name} |" in page


def test_scores_of_all_orders_of_four_plans() -> None:
    costs = [1.0, 2.0, 3.0, 4.0]
    assert tau(costs, costs) == 1
    assert tau([1, 2, 4, 3], costs) == pytest.approx(2 / 3)
    # A tie counts for nothing in its own ranking.
    assert tau([1, 1, 2, 3], costs) == pytest.approx(5 / (5 * 6) ** 0.5)
    assert regret([3, 2, 1, 4], costs) == 2
    # Of plans with equal prices the most expensive may be chosen; rounding differences are ties.
    assert regret([1.0, 1.0 + 1e-12, 2, 3], costs) == 1


def test_constants_of_whole_batches_are_found_again() -> None:
    rng, known = Random(4), CostConstants()
    true = {n: rng.uniform(0.5, 2.0) * (ALIKE.get(n) or getattr(known, n)) for n in COUNTS}
    few = {"calls": 40, "writes": 10, "merges": 3, "batches": 1}
    batches = []
    for _ in range(1000):
        counts = {
            field: rng.randint(1, few[field]) if field in few else int(10 ** rng.uniform(2, 5.5))
            for field in COUNTS.values()
        }
        seconds = sum(true[name] * counts[field] for name, field in COUNTS.items())
        batches.append(replace(Done(), cpu=seconds, **counts))
    found = whole_batches(batches)
    assert found["error"] < 0.02
    for name, seconds in true.items():
        assert found[name] == pytest.approx(seconds, rel=0.2), name
    assert {*COUNTS} - {*ALIKE} <= {*CostConstants.__slots__}


def test_constants_are_shown_by_workload_and_of_whole_batches() -> None:
    spread = {"median": 1e-6, "low": 1e-6, "high": 1e-6}
    errors = ("error", "error_of_tuples", "error_elsewhere")
    one = dict.fromkeys((*OPERATIONS, *errors), spread)
    whole = dict.fromkeys(COUNTS, 2e-6) | {"error": 0.25}
    found = cost_constants.tables({"workloads": [{"workload": "w", **one}], "whole": whole})
    assert [len(row) == len(grid.head) for grid in found for row in grid.rows] == [True, True]
    assert found[0].rows[0][:3] == ("w", "1", "1")
    assert found[1].rows[0][-1] == "25 %"
