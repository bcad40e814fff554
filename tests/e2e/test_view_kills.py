"""Tests of pipelines with views, killed where joined rows and views' versions are passed on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import duckdb
import pytest

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from anabranch_runtime.faults import Point
from tests.support.scenarios.fault_grid import Cell, Component, play_cells
from tests.support.worlds.view_runs import comparable, current_rows

CHAIN = "FROM r JOIN s ON r.a = s.a JOIN t ON s.b = t.b JOIN u ON t.c = u.c"
#: The view, and the same statement over ``q``, the joined rows of the grid's query ``q0``.
VIEWS = {
    "groups": (
        f"SELECT s.id % 7 AS g, count(*) AS n, sum(u.id) AS x, count(DISTINCT t.id) AS d {CHAIN} "
        "GROUP BY s.id % 7",
        "SELECT s % 7, count(*), sum(u), count(DISTINCT t) FROM q GROUP BY s % 7",
    ),
    "top": (
        f"SELECT r.id % 11 AS g, count(*) AS n {CHAIN} GROUP BY r.id % 11 "
        "HAVING count(*) * 20 > (SELECT count(*) {0}) ORDER BY n DESC, g LIMIT 3".replace(
            "{0}", CHAIN
        ),
        "SELECT r % 11 AS g, count(*) AS n FROM q GROUP BY g "
        "HAVING count(*) * 20 > (SELECT count(*) FROM q) ORDER BY n DESC, g LIMIT 3",
    ),
    "windows": (
        f"SELECT window.start AS w, count(*) AS n {CHAIN} GROUP BY window(s.ts, '5 minutes')",
        "SELECT time_bucket(INTERVAL 5 MINUTE, s.ts), count(*) FROM q JOIN s ON s.id = q.s "
        "GROUP BY ALL",
    ),
}  # fmt: skip
_COLUMNS = {"r": ("a",), "s": ("a", "b"), "t": ("b", "c"), "u": ("c",)}
STREAMS = {
    name: Stream(
        StreamName(name),
        (
            *((c, parse_type("bigint")) for c in (*keys, "id")),
            ("ts", parse_type("timestamp")),
        ),
        "ts",
        lateness=60_000_000,
    )
    for name, keys in _COLUMNS.items()
}


def _check(folder: Path) -> None:
    results = folder / "out" / "results"
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, path in (
            ("q", results / "q0" / "*.parquet"),
            ("s", folder / "scenario" / "s.parquet"),
        ):
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{path}')")
        for name, (sql, duck) in VIEWS.items():
            view = parse_sql(name, sql, STREAMS, 15 * 60_000_000).view
            assert view is not None
            wanted: list[tuple[Any, ...]] = connection.execute(duck).fetchall()
            assert comparable(current_rows(results / name, view)) == comparable(wanted), name
            assert wanted


@pytest.mark.spark
@pytest.mark.slow
def test_views_are_exact_though_the_pipeline_is_killed(tmp_path: Path) -> None:
    cells = [Cell(Component.DRIVER, Point.VIEWED)]
    verdict = play_cells(cells, tmp_path / "grid", {n: sql for n, (sql, _) in VIEWS.items()})
    assert not verdict.problems, str(verdict)
    _check(tmp_path / "grid")


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize("component", [Component.DRIVER, Component.JVM, Component.WORKER])
def test_views_are_exact_wherever_the_pipeline_is_killed(
    component: Component, tmp_path: Path
) -> None:
    # Checkpoints are rare: tests/runtime/views/test_keeper.py kills at them.
    points = (Point.PUBLISHED, Point.COMMITTED, Point.VIEWED)
    cells = [Cell(component, point) for point in points]
    verdict = play_cells(cells, tmp_path / "grid", {n: sql for n, (sql, _) in VIEWS.items()})
    assert not verdict.problems, str(verdict)
    _check(tmp_path / "grid")
