"""Tests of several benchmarks at a tiny scale: output and counts, never speed."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import duckdb
import pytest

from anabranch_client.replay import tpch
from anabranch_planner.cost.statistics.constants import OPERATIONS
from benchmarks import cost_constants, rate_change, statistics_cost, throughput
from benchmarks.report import __main__ as report
from benchmarks.session import BatchLog, read_log
from benchmarks.system_run import PHASES, phases

_SCALE = 0.001
_BATCHES = 3


@pytest.fixture(scope="module")
def counted(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, dict[str, int]]:
    """Number of input tuples, and query -> number of rows, by DuckDB over the tables."""
    folder = tmp_path_factory.mktemp("tables")
    streams = tpch.generate(folder, _SCALE, 1)
    with duckdb.connect() as connection:
        for stream in streams:
            connection.read_parquet(str(stream.path)).create_view(stream.name)
        results = {query.name: len(connection.sql(query.sql)) for query in tpch.QUERIES}
    return sum(stream.rows for stream in streams), results


def _figures(text: str) -> dict[str, Any]:
    """Return the only line (JSON) that a benchmark prints."""
    (line,) = text.splitlines()
    found = json.loads(line)
    assert isinstance(found, dict)
    for name in ("benchmark", "at", "commit", "changed", "versions", "machine", "load", "settings"):
        assert name in found
    return found


def _in_order(spread: dict[str, float]) -> bool:
    return 0 <= spread["low"] <= spread["median"] <= spread["high"]


@pytest.mark.slow
@pytest.mark.spark
def test_throughput(
    counted: tuple[int, dict[str, int]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tuples, results = counted
    arguments = ["--json", "--scale", str(_SCALE), "--batches", str(_BATCHES), "--runs", "1"]
    assert throughput.main([*arguments, "--tasks", "2"]) == 0
    text = capsys.readouterr().out
    found = _figures(text)
    assert found["input_tuples"] == tuples
    assert found["results"] == results
    assert [one["mode"] for one in found["runs"]] == ["live", "step"]
    for run, summary in zip(found["runs"], found["configurations"], strict=True):
        assert run["results"] == results
        assert run["total_tuples"] == tuples
        assert len(run["per_batch"]) == _BATCHES
        assert sum(batch[0] for batch in run["per_batch"]) == tuples
        assert sum(batch[1] for batch in run["per_batch"]) == sum(results.values())
        assert run["tuples"] == tuples - run["per_batch"][0][0]
        assert run["tuples_per_s"] == pytest.approx(run["tuples"] / run["seconds"], rel=1e-2)
        assert run["tuples_per_s"] <= run["tuples_per_s_without_enter"]
        assert list(run["phases"]) == list(PHASES)
        assert min(run["phases"].values()) >= 0
        assert run["state_bytes"] > 0
        assert run["cpu_seconds"] > 0
        assert run["peak_rss_bytes"] > 0
        assert _in_order(summary["tuples_per_s"])
        assert _in_order(summary["times_duckdb_seconds"])
    # Live epochs may also end by time, so there may be more.
    assert found["runs"][1]["epochs"] == _BATCHES
    assert report_of(tmp_path, "throughput", text).count("| live, 3 batches |") == 2


@pytest.mark.slow
def test_profile_of_the_worker(
    counted: tuple[int, dict[str, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--profile", "--json", "--scale", str(_SCALE), "--batches", "2", "--top", "90"]
    assert throughput.main(arguments) == 0
    found = _figures(capsys.readouterr().out)
    assert found["results"] == counted[1]
    assert len(found["functions"]) == 90
    assert any("anabranch_runtime/" in one["name"] for one in found["functions"])
    own = [one["own"] for one in found["functions"]]
    assert own == sorted(own, reverse=True)
    assert sum(own) <= found["seconds"] * 1.01


def report_of(docs: Path, benchmark: str, text: str) -> str:
    """Return the report on a result line, after checking that it is the same when made again."""
    (docs / "benchmarks").mkdir()
    (docs / "benchmarks" / f"{benchmark}.jsonl").write_text(text, encoding="utf-8")
    assert report.main(["--docs", str(docs)]) == 0
    made = {p.name: p.read_bytes() for p in docs.rglob("*") if p.suffix in (".md", ".svg")}
    assert report.main(["--docs", str(docs)]) == 0
    assert {p.name: p.read_bytes() for p in docs.rglob("*") if p.name in made} == made
    (chart,) = (content for name, content in made.items() if name.endswith(".svg"))
    assert ElementTree.fromstring(chart).tag.endswith("svg")
    return made["benchmarks.md"].decode()


def test_a_report_needs_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "benchmarks").mkdir()
    assert report.main(["--docs", str(tmp_path)]) == 1
    assert "make bench" in capsys.readouterr().err
    assert not (tmp_path / "benchmarks.md").exists()


def test_the_runtimes_log_gives_batches_and_phases(tmp_path: Path) -> None:
    entry = {
        "event": "batch committed",
        "timestamp": "2024-01-01T00:00:01.500000Z",
        **{"batch": 0, "epoch": 0, "tuples": 10, "results": 2},
        **{"enter_ms": 100, "job_ms": 700, "commit_ms": 50},
        "task_ms": {"read": 10, "store": 20, "wait": 30, "probe": 400, "write": 40},
    }
    later = entry | {"batch": 1, "timestamp": "2024-01-01T00:00:02.500000Z"}
    log = tmp_path / "runtime.log"
    log.write_text(f'WARN from Java\n{json.dumps(entry)}\n{{"event": "x"}}\n{json.dumps(later)}\n')
    first, second = read_log(log)
    assert isinstance(first, BatchLog)
    assert second.committed_at - first.committed_at == 1.0
    found = phases([second], 1.0)
    assert found == pytest.approx(
        {"between": 0.15, "enter": 0.1, "read": 0.01, "store": 0.02, "wait": 0.03}
        | {"probe": 0.4, "write": 0.04, "spark": 0.2, "commit": 0.05}
    )
    assert sum(found.values()) == pytest.approx(1.0)


def test_rate_change(capsys: pytest.CaptureFixture[str]) -> None:
    """With forecasts, a rate change is answered at once; with history, later."""
    arguments = ["--json", "--histories", "10", "--after", "30", "--steady", "4"]
    assert rate_change.main(arguments) == 0
    document = json.loads(capsys.readouterr().out)
    rows = document["rows"]
    assert [(r["case"], r["mode"]) for r in rows] == [
        (case, mode) for case in rate_change.cases(10) for mode in ("live", "step")
    ]
    for row in rows:
        assert row["ahead"]["epochs"] <= 3 < row["history"]["epochs"]


@pytest.mark.slow
def test_cost_constants(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--scale", str(_SCALE), "--rows", "500", "--batches", "6"]
    whole = ["--batch-rows", "200", "--plans", "1"]
    assert cost_constants.main([*arguments, *whole, "--rounds", "1"]) == 0
    entry = _figures(capsys.readouterr().out)
    assert entry["whole"].keys() == {*cost_constants.COUNTS, "error"}
    assert min(entry["whole"].values()) >= 0
    found = entry["workloads"]
    assert [one["workload"] for one in found] == ["tpch", "events"]
    for one in found:
        assert all(_in_order(one[name]) for name in (*OPERATIONS, "error", "error_of_tuples"))
        assert one["call"]["median"] > 0
        # The absolute errors of the cost fit sum to less than the measured CPU time.
        assert one["error"]["median"] < 1


@pytest.mark.slow
def test_statistics_cost(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["--json", "--scale", str(_SCALE), "--rows", "600", "--batches", "4"]
    assert statistics_cost.main([*arguments, "--rounds", "1"]) == 0
    found = _figures(capsys.readouterr().out)
    assert [one["workload"] for one in found["workloads"]] == ["tpch", "events"]
    for one in found["workloads"]:
        assert 0 < one["inside"]["median"] < 1
        assert _in_order(one["inside_later_half"])
        assert one["manifest_bytes"]["with"] > one["manifest_bytes"]["without"]
