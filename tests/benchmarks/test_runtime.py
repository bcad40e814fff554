"""Tests of the runtime benchmarks at a tiny scale: output and checks, never speed."""

from __future__ import annotations

import argparse
import json
import os
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pytest

from anabranch_client.replay import tpch
from anabranch_client.replay.oracle import Active, compare
from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.queries.joins import Stream
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from benchmarks.command import Benchmark, quantile
from benchmarks.engine import Engine
from benchmarks.kinds import Kind, KindMeter
from benchmarks.profiled import blocks_of, planner_stream, recorded
from benchmarks.runtime import (
    adaptation,
    aggregates,
    fixed_cost,
    ingest,
    latency,
    queries,
    rewire,
    separate,
    sharing,
    state_size,
    updates,
    workload,
)
from benchmarks.runtime.command import run
from benchmarks.runtime.newest import newest, runs_of
from benchmarks.runtime.pacing import Latency, Pacer
from benchmarks.runtime.report import __main__ as report
from benchmarks.session import BatchLog
from tests.support.surroundings.redis import redis_url


def _line(benchmark: Benchmark, arguments: str, capsys: pytest.CaptureFixture[str]) -> Any:
    assert run(benchmark, ["--json", "--tasks", "2", *arguments.split()]) == 0
    (text,) = capsys.readouterr().out.splitlines()
    found = json.loads(text)
    for name in ("benchmark", "part", "at", "versions", "machine", "load", "settings"):
        assert name in found
    assert all(grid.rows and grid.markdown() for grid in benchmark.tables(found))
    return found


def _report(docs: Path, entries: list[Any]) -> str:
    """Return the report on result lines, after checking that it is the same when made again."""
    (docs / "benchmarks").mkdir(parents=True)
    text = "".join(json.dumps(entry) + "\n" for entry in entries)
    (docs / "benchmarks" / "runtime.jsonl").write_text(text)
    assert report.main(["--docs", str(docs)]) == 0
    made = {p: p.read_bytes() for p in docs.rglob("*") if p.suffix in (".md", ".svg")}
    assert report.main(["--docs", str(docs)]) == 0
    assert {p: p.read_bytes() for p in made} == made
    for path in made:
        if path.suffix == ".svg":
            assert ElementTree.fromstring(made[path]).tag.endswith("svg")
            assert f"benchmarks/{path.name}" in (docs / "benchmarks-runtime.md").read_text()
    return (docs / "benchmarks-runtime.md").read_text()


def test_large_state_in_process_and_its_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = "--through engine --sizes 0.003 0.01 --batch 600 --fill 5000 --measured 2"
    found = _line(state_size.BENCHMARK, sizes, capsys)
    small, large = found["engine"]["sizes"]
    assert (small["stored"], large["stored"]) == (3_000, 10_000)
    assert 0 < small["state_bytes"] < large["state_bytes"]
    text = _report(tmp_path, [found])
    assert "throughput at 10,000 stored tuples, of that at 3,000 (engine)" in text
    assert "| engine | 10,000 |" in text


def test_other_results_than_the_oracles_leave_no_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    check = state_size._check
    monkeypatch.setattr(state_size, "_check", lambda wanted, at: check(np.roll(wanted, 1), at))
    arguments = "--json --through engine --sizes 0.003 --batch 600 --measured 1"
    assert run(state_size.BENCHMARK, arguments.split()) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert "no figures for state_size" in said.err


def test_updates_in_process_and_their_report(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sizes = "--parts own state --results 400 --keys 60 --updates 800 --batch 40"
    found = _line(updates.BENCHMARK, sizes, capsys)
    assert [one["results"] for one in found["own"]["sizes"]] == [100, 400]
    assert all(part["rows"]["low"] >= 60 for part in found["state"]["quarters"])
    text = _report(tmp_path, [found])
    assert "## Updates" in text
    assert "update of one row with 400 results of its own: memory" in text
    assert "800 updates of 60 keys: bytes of the store in the second half" in text


def test_aggregating_queries_differ_and_share_groupings() -> None:
    found = aggregates.aggregating(100)
    assert len({query.sql for query in found}) == 100
    alike = aggregates.groupings(found)
    assert sorted(name for some in alike for name in some) == sorted(q.name for q in found)
    # Five groupings, each with four conditions and without any.
    assert sorted(map(len, alike)) == [1] * 20 + [16] * 5


def _runs(part: str, *figures: dict[str, Any]) -> list[str]:
    common = {"benchmark": "runtime", "part": part}
    return [json.dumps({**common, "at": n, **one}) for n, one in enumerate(figures)]


def test_what_a_run_left_out_is_an_earlier_ones() -> None:
    small, large = {"scale": 0.1, "queries": 5, "x": 1}, {"scale": 1.0, "queries": 5, "x": 1}
    again = {**large, "x": 2}
    both, again_only = {"workloads": [small, large]}, {"workloads": [again]}
    (found,) = newest(_runs("sharing", both, again_only)).values()
    assert found["workloads"] == [small, again]
    assert [run["at"] for run in runs_of(found)] == [0, 1]
    (found,) = newest(_runs("sharing", again_only, both)).values()
    assert found["workloads"] == [small, large]
    assert [run["at"] for run in runs_of(found)] == [1]
    growth, added = {"growth": {"a": 1}}, {"added": {"b": 2}}
    (found,) = newest(_runs("queries", {**growth, "added": {}}, added)).values()
    assert found["growth"] == {"a": 1}
    assert found["added"] == {"b": 2}
    (found,) = newest(_runs("latency", {"p50": 1}, {"p50": 2})).values()
    assert found["p50"] == 2
    assert [run["at"] for run in runs_of(found)] == [1]


def test_a_report_needs_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert report.main(["--docs", str(tmp_path)]) == 1
    assert "make bench-runtime" in capsys.readouterr().err


def test_individual_plans_share_nothing_but_the_input(tmp_path: Path) -> None:
    streams = [planner_stream(s) for s in tpch.generate(tmp_path, 0.001, 1)]
    by_name: dict[str, Stream] = {s.name: s for s in streams}
    found = [parse_sql(q.name, q.sql, by_name) for q in sharing.WORKLOADS[10]]
    plan = optimise(found, Statistics(), Options(optimizer=Optimizer.INDIVIDUAL, parallelism=2))
    rules = compile_ruleset(plan, found, streams, epoch=0, parallelism=2, sinks={})
    for query in found:
        own = {s.id for s in rules.stores if s.owner == query.id}
        bases = {s.relations for s in rules.stores if s.id in own and len(s.members) == 1}
        assert bases == {(m.relation,) for m in query.members}
        probes = [p for p in rules.probe_rules if p.out.startswith(f"{query.id}:")]
        assert probes
        assert {p.store for p in probes} <= own
        assert {step.store for p in probes for step in p.fill} <= own
    assert all(s.owner for s in rules.stores)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("experiment", "start", "before", "after"),
    [("partners", "s", "s>r>t>u", "s>t>"), ("rates", "u", "u>t>s>r", "u>rst")],
)
def test_plans_follow_a_change_of_the_input(
    tmp_path: Path, experiment: str, start: str, before: str, after: str
) -> None:
    options = argparse.Namespace(
        rate=8000.0, window=2.0, before=10.0, after=8.0, interval=0.5, warm_up=4, partners=100
    )
    streams, query = adaptation.generate(tmp_path, experiment, options), adaptation.query(2.0)
    known = [replace(planner_stream(s), lateness=1_000_000) for s in streams]
    every, orders = 4, []
    with redis_url() as url:
        engine = Engine(tmp_path / "run", url, known, [query], every=every)
        recordings = recorded(streams, tmp_path)
        for batch in range(streams[0].batches):
            engine.run(lambda task, tasks, b=batch: blocks_of(recordings, b, task, tasks))  # type: ignore[misc]
            if batch % every == 0:
                rules = engine.ruleset(batch // every)
                orders.append(adaptation.described(rules)["orders"][start])
        engine.finish()
    assert orders[6 - 1] == before  # the last epoch before the change
    assert orders[-1].startswith(after)
    always = Active(activated=0, expired=None, visible_from={})
    (found,) = compare(streams, [(query, always)], tmp_path / "run" / "results").values()
    assert found.match
    assert found.results > 0


def test_queries_are_nested_connected_and_answerable(tmp_path: Path) -> None:
    found = workload.queries(60)
    assert found[:7] == workload.queries(7)
    assert 20 < workload.distinct_joins(found) < 60
    streams = workload.generate(tmp_path, 200, 4)
    assert [s.batches for s in streams] == [4] * workload.STREAMS
    with duckdb.connect() as connection:
        for stream in streams:
            connection.read_parquet(str(stream.path)).create_view(stream.name)
        counts = [len(connection.sql(query.sql)) for query in found]
    # A row has one partner in each of the other streams, on average.
    assert 100 < np.mean(counts) < 400


def test_latency_is_counted_from_when_tuples_are_due() -> None:
    pacer = Pacer.__new__(Pacer)
    pacer.interval, pacer.first, pacer.began = 0.5, 2, 1000.0

    def batch(number: int, committed_at: float) -> BatchLog:
        return BatchLog(number, 0, 10, 0, committed_at, 0.0, 0.0, 0.0, {})

    # The third batch commits late, so the fourth has to wait: both count as late.
    log = [batch(0, 900.0), batch(2, 1000.75), batch(3, 1003.0), batch(4, 1003.25)]
    found = pacer.latencies(log)
    assert [(one.batch, one.at, one.least) for one in found] == [
        (2, 0.5, 0.25),
        (3, 1.0, 2.0),
        (4, 1.5, 1.75),
    ]
    sample = found[0].sample()
    assert min(sample) > 0.25
    assert max(sample) < 0.75
    assert quantile(sample, 0.5) == pytest.approx(0.5, abs=0.01)
    assert Latency(0, 0.5, 0, 0.1, 0.5).sample() == []


def test_processes_are_told_apart() -> None:
    meter = KindMeter(lambda: {"service": os.getpid()}, interval=0.05)
    meter.start()
    sum(range(3_000_000))
    meter.stop()
    assert meter.cpu_by_kind[Kind.SERVICE] == meter.cpu_seconds > 0
    assert meter.peak_rss_bytes > 1 << 20


@pytest.mark.slow
@pytest.mark.spark
def test_the_whole_system(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    entries = [
        _line(benchmark, arguments, capsys)
        for benchmark, arguments in (
            (sharing.BENCHMARK, "--scale 0.001 --queries 5 10 --batches 3 --runs 1"),
            (separate.BENCHMARK, "--scale 0.001 --batches 3 --runs 1"),
            (
                queries.BENCHMARK,
                "--counts 1 2 4 --base 2 --rows 400 --sparsity 1 --batches 3 --runs 1",
            ),
            (rewire.BENCHMARK, "--scale 0.002 --batches 40 --epoch-batches 4 --runs 1"),
            (
                state_size.BENCHMARK,
                "--sizes 0.002 0.006 --batch 600 --fill 2000 --measured 2",
            ),
            (fixed_cost.BENCHMARK, "--queries 3 --rounds 2 --block 3 --warm-up 2"),
            (latency.BENCHMARK, "--rate 2000 --seconds 4 --interval 0.5 --warm-up 1 --runs 1"),
            (ingest.BENCHMARK, "--rows 3000 --files 2 --small 2 --small-rows 10 --runs 1"),
            (
                adaptation.BENCHMARK,
                "--rate 2000 --before 4 --after 4 --warm-up 2 --epoch-batches 2 --runs 1",
            ),
            (aggregates.BENCHMARK, "--queries 1 5 --rows 400 --batches 2 --warm-up 1"),
            (updates.BENCHMARK, "--results 400 --rounds 2 --keys 60 --updates 400 --batch 40"),
        )
    ]
    by_part = {entry["part"]: entry for entry in entries}
    cpu = by_part["updates"]["others"]["cpu"]
    assert cpu.keys() == {"upsert", "delete_and_insert", "upsert_alone"}
    assert [one["tables"] for one in by_part["aggregates"]["counts"]] == [1, 2]
    five, ten = by_part["sharing"]["workloads"]
    for work in (five, ten):
        assert work["ratios"]["individual"]["state"]["median"] > 2
        assert len(work["results"]) == work["queries"]
    apart = by_part["separate"]
    assert apart["separate"]["tuples_read"]["median"] > apart["joint"]["tuples_read"]["median"]
    assert apart["ratios"]["throughput"]["median"] > 1
    added = by_part["queries"]["added"]
    assert added["written"]["added_state_bytes"]["median"] == 0
    assert added["counted"]["probes_added"]["median"] == 0
    assert by_part["rewire"]["all"]["count"] > 0
    assert {e["experiment"] for e in by_part["adaptation"]["experiments"]} == {"partners", "rates"}
    read_by = [(one["kind"], one["format"]) for one in by_part["ingest"]["sources"]]
    assert read_by == [(k, f) for k in ("parquet", "json") for f in ("files", k)]
    text = _report(tmp_path, entries)
    for heading in report._HEADINGS.values():
        assert f"## {heading}\n" in text
