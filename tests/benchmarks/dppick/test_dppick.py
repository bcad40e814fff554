"""Tests of the dppick benchmark (probe orders chosen while an operator runs) at a tiny scale:
results, repeatability, the report page.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from itertools import permutations
from pathlib import Path

import duckdb
import pytest

from benchmarks.dppick import __main__ as dppick
from benchmarks.dppick.bound import Size, savings
from benchmarks.dppick.command import MEMORY
from benchmarks.dppick.drifts import GRAPHS, NAMES, PATTERNS, Drift, workload_of
from benchmarks.dppick.engine import Outcome, Policy, Workload, orders_of, run
from benchmarks.dppick.measures import History, Period
from benchmarks.dppick.rounds import FIXED, ablations, rivals
from benchmarks.dppick.streams import sizes_of, tpcds_stream
from benchmarks.papers.dppick.problem import Accounting
from benchmarks.papers.dppick.search import Algorithm
from benchmarks.session import WrongResultError
from benchmarks.state import tpcds
from benchmarks.umjoin.operators.chains import StepCounts

DRIFT = Drift("star", "swap", 1, tuples=80, batches=45)


@pytest.fixture
def folders() -> Iterator[Iterator[Path]]:
    """Return a function that creates new folders, in memory (tmpfs) if possible."""
    with tempfile.TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else None) as home:
        yield (Path(home) / f"state-{number}" for number in range(1000))


def _tables(cache: Path) -> None:
    """Write tables like TPC-DS's: unequal sizes, some NULL keys."""
    folder = cache / "sf0.001"
    folder.mkdir(parents=True)
    rows = dict(zip(tpcds.TABLES, (400, 600, 1200, 300), strict=True))
    with duckdb.connect() as db:
        for number, (table, column) in enumerate(tpcds.TABLES.items()):
            db.execute(
                f"COPY (SELECT CASE WHEN i % 31 = 0 THEN NULL ELSE hash(i + {number} * 9999) % 200 "
                f"END::BIGINT AS {column} FROM range({rows[table]}) r(i)) "
                f"TO '{folder / table}.parquet' (FORMAT parquet)"
            )


@pytest.mark.parametrize("graph", GRAPHS)
def test_every_policy_and_order_finds_the_same_results(graph: str, folders: Iterator[Path]) -> None:
    workload = workload_of(Drift(graph, "swap", 3, tuples=60, batches=12))
    assert workload.expected > 0
    policies = (*rivals(3, 60), *ablations(3, 60))
    distinct: list[dict[str, tuple[str, ...]]] = []
    for permutation in permutations(NAMES):
        orders = orders_of(workload.join, permutation)
        if orders not in distinct:
            distinct.append(orders)
    for orders in distinct:
        assert run(workload, FIXED, orders, next(folders)).results == workload.expected
    for number, policy in enumerate(policies):
        orders = distinct[number % len(distinct)]
        assert run(workload, policy, orders, next(folders)).results == workload.expected


def test_other_results_are_refused(folders: Iterator[Path]) -> None:
    found = workload_of(DRIFT)
    wrong = type(found)(found.name, found.join, found.batches[:-1], found.expected, found.reach)
    with pytest.raises(WrongResultError, match="DuckDB has"):
        run(wrong, FIXED, orders_of(found.join, NAMES), next(folders))


def _runs(workload: Workload, policy: Policy, folders: Iterator[Path]) -> list[Outcome]:
    first = orders_of(workload.join, NAMES)
    return [run(workload, policy, first, next(folders)) for _ in range(2)]


def test_decisions_and_counts_repeat_for_equal_seeds(folders: Iterator[Path]) -> None:
    policy = Policy("dppick", Algorithm.DPPICK)
    one, other = _runs(workload_of(DRIFT), policy, folders)
    (again, _) = _runs(workload_of(DRIFT), policy, folders)
    assert one.reorderings >= 2
    for same in (other, again):
        assert same.changes == one.changes
        assert same.steps == one.steps


def test_dppick_follows_a_swap_and_beats_every_order_that_stays(folders: Iterator[Path]) -> None:
    workload = workload_of(Drift("star", "swap", 1, tuples=80, batches=90))
    fixed = [
        run(workload, FIXED, orders_of(workload.join, (*p, "h")), next(folders)).work
        for p in permutations("abc")
    ]
    first = orders_of(workload.join, NAMES)
    found = run(workload, Policy("dppick", Algorithm.DPPICK), first, next(folders))
    assert found.work < 0.9 * min(fixed)
    exact = run(workload, Policy("exact", Algorithm.EXACT), first, next(folders))
    # Orders of equal cost differ in their work.
    assert exact.work == pytest.approx(found.work, rel=0.01)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_each_pattern_has_few_results_and_steps_that_fan_out(
    pattern: str, folders: Iterator[Path]
) -> None:
    workload = workload_of(Drift("star", pattern, 2, tuples=160, batches=60))
    arrived = sum(b[n].num_rows for b in workload.batches for n in NAMES)
    outcome = run(workload, FIXED, orders_of(workload.join, NAMES), next(folders))
    assert workload.expected < outcome.matches / 2
    widest = max(step.matches / step.found for step in outcome.steps.values() if step.found)
    assert widest > 5
    assert outcome.probes > arrived


def test_steps_that_did_not_run_take_figures_of_those_that_did() -> None:
    join = workload_of(DRIFT).join
    step = StepCounts(probes=100, found=40, matches=80)
    period = Period(
        {(("h",), "a"): step},
        dict.fromkeys(NAMES, 100),
        dict.fromkeys(NAMES, 50),
        dict.fromkeys(NAMES, 0),
        {"h": 100, "a": 200, "b": 100, "c": 100},
    )
    problem = History.of(join, 60).recorded(period).problem(smooth=False)
    h, a, b = (NAMES.index(n) for n in "hab")

    def mean(visited: int, target: int) -> float:
        match = problem.figures.one(0, visited, 0, target)
        return match.gamma * match.mu

    assert mean(1 << h, a) == pytest.approx(0.8)
    assert mean(1 << h | 1 << b, a) == pytest.approx(0.8)
    # Both sides agree on a pair's selectivity: 80 of 100 probes times 100 rows; h has 50 rows on
    # average.
    assert mean(1 << a, h) == pytest.approx(0.4)
    assert mean(1 << h, b) == pytest.approx(50 / 50)
    assert problem.accounting is Accounting.TUPLE


def test_a_store_that_has_grown_answers_more_in_the_next_period() -> None:
    join = workload_of(DRIFT).join
    history = History.of(join, 60)
    for number in range(2):
        rows = [dict.fromkeys(NAMES, 100 * n) for n in (number, number + 1)]
        step = StepCounts(100, 10 * (2 * number + 1), 20 * (2 * number + 1))
        arrivals, keys = dict.fromkeys(NAMES, 100), dict.fromkeys(NAMES, 50)
        history = history.recorded(Period({(("h",), "a"): step}, arrivals, keys, *rows))
    match = history.problem(smooth=True).figures.one(0, 1, 0, NAMES.index("a"))
    assert match.gamma * match.mu == pytest.approx(1.0)


def test_the_bound_is_what_static_orders_have(tmp_path: Path, folders: Iterator[Path]) -> None:
    _tables(tmp_path / "cache")
    workload = tpcds_stream(0.001, 250, 7, tmp_path / "cache")
    sizes, keys = sizes_of(workload)
    assert sizes["web_returns"] == Size(300, 290)
    found = savings(sizes, keys)
    names = tuple(workload.join.by_name)
    fixed = [
        run(workload, FIXED, orders_of(workload.join, p), next(folders))
        for p in permutations(names)
    ]
    for name, counts in (
        ("probes", [one.probes for one in fixed]),
        ("both", [one.work for one in fixed]),
    ):
        assert found[name].least == pytest.approx(min(counts), rel=0.15)
        assert found[name].mean == pytest.approx(1 - min(counts) * 24 / sum(counts), abs=0.05)
        assert found[name].worst == pytest.approx(1 - min(counts) / max(counts), abs=0.05)
    assert asdict(found["probes"]) == asdict(savings(sizes, keys)["probes"])


def test_the_page_has_all_parts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache, docs = tmp_path / "cache", tmp_path / "docs"
    _tables(cache)
    (docs / "benchmarks").mkdir(parents=True)
    assert dppick.main(["--report", "--docs", str(docs)]) == 1
    stream = ["--scale", "0.001", "--batch", "1250", "--cache", str(cache), "--period", "1"]
    small = ["--tuples", "40", "--batches", "12"]
    for part, more in (
        ("orders", [*stream, "--rounds", "1"]),
        ("ablations", stream),
        ("sweeps", [*stream, "--periods", "2", "--lengths", "5", "--tuples", "40"]),
        ("drifting", [*small, "--seeds", "1", "--graphs", "path"]),
        ("decisions", ["--streams", "4", "10", "--rounds", "2"]),
    ):
        assert dppick.main(["--json", "--only", part, *more]) == 0
        with (docs / "benchmarks" / "dppick.jsonl").open("a") as file:
            file.write(capsys.readouterr().out)
    assert dppick.main(["--report", "--docs", str(docs)]) == 0
    text = (docs / "benchmarks-dppick.md").read_text()
    lines = (docs / "benchmarks" / "dppick.jsonl").read_text().splitlines()
    orders = json.loads(lines[0])
    assert set(orders["orders"]) == {"".join(p) for p in permutations(("Cu", "Cr", "Sr", "Wr"))}
    assert "of hindsight's" in text
    assert (docs / "benchmarks" / "dppick-drifts.svg").exists()
    assert dppick.main(["--only", "decisions", "--streams", "4", "--rounds", "2"]) == 0
    assert "CPU milliseconds" in capsys.readouterr().out
