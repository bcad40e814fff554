"""The benchmarks of many queries at a tiny scale: their shape and checks, never their speed."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from benchmarks.command import run_benchmark
from benchmarks.queries import batches, epochs, registration, report, workload

if TYPE_CHECKING:
    from pathlib import Path

    import pytest


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
    small = ["--rows", "400", "--alike", "2"]
    brought = figures(batches, capsys, "3", *small)
    assert {case["case"] for case in brought["cases"]} == {"busy", "silent", "filtered", "alike"}
    assert all(case["cpu_s"]["median"] > 0 < case["apart_s"]["median"] for case in brought["cases"])

    parts = (registered, planned, brought)
    lines = "".join(json.dumps(found) + "\n" for found in parts)
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "queries.jsonl").write_text(lines)
    assert report.main(["--docs", str(tmp_path)]) == 0
    text = (tmp_path / "benchmarks-queries.md").read_text()
    assert "| an epoch without a change, 27 queries, s |" in text
    assert "CPU of a batch that concerns all of 3 queries" in text
    assert text.count("\n| 2 |") == 1
