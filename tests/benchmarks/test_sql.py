"""Filters with functions over few rows: counts equal to DuckDB's, and the page, never speed."""

from __future__ import annotations

import argparse
import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from benchmarks.command import run_benchmark
from benchmarks.session import WrongResultError
from benchmarks.sql import filters, report


def figures(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    given = ["--json", "--rows", "3000", "--rounds", "2", *arguments]
    assert run_benchmark("sql", filters.BENCHMARK, given, filters.common) == 0
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def test_filters_have_ten_functions_and_pass_the_rows_of_duckdb(
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = figures(capsys)
    assert [one["filter"] for one in found["filters"]] == list(filters.FILTERS)
    for one in found["filters"]:
        assert 0 < one["passing"] < 3000
        assert "".join(filters.FILTERS[one["filter"]]).count("(") >= 10
    assert [one["condition"] for one in found["conditions"]] == list(filters.FILTERS["mixed"])


def test_another_count_is_no_figure(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(filters._DUCKDB, "length(s) > 4", "length(s) > 99")
    arguments = ["--rows", "500", "--rounds", "1", "--filters", "texts"]
    with pytest.raises(WrongResultError, match="rows pass here"):
        filters.measure(_parsed(arguments), tmp_path)


def _parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    filters.BENCHMARK.options(parser)
    return parser.parse_args(arguments)


def test_the_page_is_made_from_the_saved_line(tmp_path: Path) -> None:
    docs = Path("docs")
    assert report.main(["--docs", str(tmp_path)]) == 1
    shutil.copytree(docs / "benchmarks", tmp_path / "benchmarks")
    assert report.main(["--docs", str(tmp_path)]) == 0
    made = (tmp_path / "benchmarks-sql.md").read_text("utf-8")
    assert made == (docs / "benchmarks-sql.md").read_text("utf-8")
