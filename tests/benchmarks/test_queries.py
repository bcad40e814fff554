"""Tests of the benchmarks of many queries at a tiny scale: output and checks, never speed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from benchmarks.command import run_benchmark
from benchmarks.queries import (
    activation,
    batches,
    churn,
    epochs,
    group_commit,
    live,
    registration,
    report,
    workload,
)
from benchmarks.session import BatchLog


def figures(module: Any, capsys: pytest.CaptureFixture[str], *levels: str) -> dict[str, Any]:
    arguments = ["--json", "--streams", "40", "--queries", *levels]
    assert run_benchmark("queries", module.BENCHMARK, arguments, module.common) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_the_workload_is_the_same_however_long_it_is_and_can_be_planned() -> None:
    many = list(workload.queries(60, 8))
    assert list(workload.queries(20, 8)) == many[:20]
    assert len({query.sql for query in many}) == 60
    assert {len(query.streams) for query in many} == {3, 4, 5}
    columns = tuple((name, parse_type(kind)) for name, kind in workload.COLUMNS.items())
    streams = {
        name: Stream(StreamName(name), columns, event_time="ts", lateness=0)
        for name in workload.streams(8)
    }
    for query in many:
        assert len(parse_sql(query.name, query.sql, streams, 60_000_000).members) in (3, 4, 5)


def test_sinks_are_measured_with_and_without_groups(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--queries", "2", "--batches", "4", "--every", "2"]
    made = group_commit.BENCHMARK, arguments, registration.common
    assert run_benchmark("queries", *made) == 0
    cases = {case["sink"]: case for case in json.loads(capsys.readouterr().out)["cases"]}
    assert len({case["results"] for case in cases.values()}) == 1
    assert cases["files"]["files"] >= 2 * (4 + 8) > cases["files, gathered"]["files"] > 0
    assert group_commit.tables({"cases": list(cases.values())})


def test_registrations_and_epochs_are_measured_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registration, "SINGLE", 2)
    monkeypatch.setattr(registration, "EACH", 1)
    monkeypatch.setattr(epochs, "ROUNDS", 1)
    registered = figures(registration, capsys, "2", "20")
    assert [level["queries"] for level in registered["levels"]] == [2, 20]
    assert [level["failed"] for level in registered["levels"]] == [0, 0]
    planned = figures(epochs, capsys, "3", "27")
    first, last = planned["levels"]
    assert first["gap"] == 0 <= last["gap"]
    assert 0 < first["ruleset_mb"] < last["ruleset_mb"]
    assert last["kept_mb"] < last["ruleset_mb"] / 3

    monkeypatch.setattr(batches, "FIRST", 2)
    monkeypatch.setattr(batches, "ROUNDS", 1)
    small = ["--rows", "400", "--alike", "2", "--rules", "2", "4"]
    brought = figures(batches, capsys, "3", *small)
    kinds = {"busy", "silent", "filtered", "alike", "alike, own stores", "rules"}
    assert {case["case"] for case in brought["cases"]} == kinds
    assert all(case["cpu_s"]["median"] > 0 < case["apart_s"]["median"] for case in brought["cases"])

    parts = (registered, planned, brought)
    lines = "".join(json.dumps(found) + "\n" for found in parts)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "queries.jsonl").write_text(lines)
    assert report.main(["--docs", str(tmp_path)]) == 0
    text = (tmp_path / "benchmarks-queries.md").read_text()
    assert "| an epoch without a change, 27 queries | ≤ 0.1 s |" in text
    assert "CPU of a batch that concerns all of 3 queries" in text
    assert text.count("\n| 2 |") == 1


def test_few_queries_are_busy_and_have_streams_of_their_own() -> None:
    loud, quiet = live.parts(50, 0.1)
    assert (len(loud), len(quiet)) == (5, 45)
    chosen = live.chosen(100, 50, 0.1)
    assert len({query.name for query in chosen}) == 100
    busy = [query for query in chosen if set(query.streams) <= set(loud)]
    assert len(busy) == 10
    assert all(set(query.streams) <= set(quiet) for query in chosen if query not in busy)


def test_what_arrives_is_the_rate_and_a_row_now_and_then(tmp_path: Path) -> None:
    ticks = live.prepare(tmp_path, ["a", "b"], ["c", "d", "e"], rate=80, seconds=20)
    assert sum(tick.rows for tick in ticks) == 20 * 80 + 2 * 3
    assert [set(tick.files) for tick in ticks[:4]] == [{"a", "c"}, {"b", "d"}, {"a", "e"}, {"b"}]


def _batch(number: int, tuples: int, at: float) -> BatchLog:
    return BatchLog(number, 0, tuples, 0, at, 0.1, 0.5, 0.1, {}, "0")


def test_a_backlog_that_grows_is_not_kept_up_with() -> None:
    # Ten rows arrive each second, and batches commit the rows of the previous second.
    arrivals = [(float(second), 10 * second) for second in range(1, 101)]
    steady = [_batch(n, 10, n + 1.5) for n in range(1, 99)]
    found = live.kept_up(steady, arrivals, 0, 100)
    assert found["keeps_up"]
    assert found["fed_per_s"] == 10
    assert found["end"]["lag_s"] == pytest.approx(1.0, abs=0.2)
    assert found["end"]["rows"] == pytest.approx(15, abs=2)
    # Half of the batches are slow.
    slow = [_batch(n, 5, n + 1.5) for n in range(1, 99)]
    found = live.kept_up(slow, arrivals, 0, 100)
    assert not found["keeps_up"]
    assert found["half"]["lag_s"] == pytest.approx(24, abs=2)
    assert found["end"]["lag_s"] == pytest.approx(48, abs=2)


def test_an_epoch_is_late_that_an_older_plan_begins() -> None:
    log = [
        BatchLog(n, epoch, 1, 0, 10.0 + n, 0.1, 0.5, 0.1, {}, ruleset)
        for n, (epoch, ruleset) in enumerate(((0, "0"), (1, "0"), (2, "2.1"), (3, "2")))
    ]
    found = live.epochs(log, {0: 5.0, 2: 11.5, 3: 13.5}, 10.0, 14.0)
    assert (found["begun"], found["late"], found["published"]) == (4, 2, 2)
    delay = {"median": 2.0, "low": 1.5, "high": 2.5, "runs": 2, "interval": [1.5, 2.5]}
    assert found["delay_s"] == delay


@pytest.mark.slow
@pytest.mark.spark
def test_one_query_more_is_active_soon(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(activation, "MORE", 2)
    monkeypatch.setattr(activation, "PAUSE", 1.0)
    monkeypatch.setattr(activation, "CHANGED", 1)
    monkeypatch.setattr(activation, "BURST", 3)
    given = activation.BENCHMARK, ["--json", "--rules", "3", "10"], registration.common
    assert run_benchmark("queries", *given) == 0
    text = capsys.readouterr().out
    levels = json.loads(text)["levels"]
    assert [level["rules"] for level in levels] == [3, 10]
    assert [level["burst_s"]["runs"] for level in levels] == [3, 3]
    assert [level["replaced_s"]["runs"] for level in levels] == [1, 1]
    assert all(0 < level["deleted_s"]["median"] < 60 for level in levels)
    assert all(0 < level["active_s"]["median"] < 30 for level in levels)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "queries.jsonl").write_text(text)
    assert report.main(["--docs", str(tmp_path)]) == 0
    report_text = (tmp_path / "benchmarks-queries.md").read_text()
    assert "| active, one rule more among 10 | ≤ 0.3" in report_text


@pytest.mark.slow
@pytest.mark.spark
def test_live_load_and_churn_are_measured_and_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(module: Any, *arguments: str) -> dict[str, Any]:
        given = ["--json", "--streams", "20", *arguments]
        assert run_benchmark("queries", module.BENCHMARK, given, module.common) == 0
        found = json.loads(capsys.readouterr().out)
        assert isinstance(found, dict)
        return found

    loads = [
        run(live, "--queries", queries, "--rate", "200", "--seconds", "6")
        for queries in ("20", "40")
    ]
    for load in loads:
        assert load["fed"] >= 1200
        # There may be no batch at all if the machine is busy.
        assert load["batches"] >= 0
        assert 0 < load["planning"] < 1
    lines = [
        run(churn, "--queries", "30", "--change", "3", "--epochs", "6"),
        run(churn, "--steady-minutes", "0.2"),
    ]
    assert lines[0]["last_epoch"] >= 6
    for line in lines:
        assert set(churn.MEASURES) <= set(line["growth"])

    (tmp_path / "benchmarks").mkdir()
    text = "".join(json.dumps(found) + "\n" for found in (*loads, *lines))
    (tmp_path / "benchmarks" / "queries.jsonl").write_text(text)
    assert report.main(["--docs", str(tmp_path)]) == 0
    text = (tmp_path / "benchmarks-queries.md").read_text()
    assert "| 20 queries, 200 rows/s: lag at the end |" in text
    assert "| 40 queries, 200 rows/s: planning's part of CPU |" in text
    assert "| churn: growth of Valkey |" in text
    assert "| 0.2 minutes of 5 queries: growth of manifest |" in text
