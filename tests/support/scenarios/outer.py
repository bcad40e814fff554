"""A scenario of outer, semi and anti joins over a multi-way join, and a view over one."""

from __future__ import annotations

import datetime as dt
import json
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.passes import parse_sql
from tests.support.oracles.asof import as_lateral
from tests.support.scenarios.file import read_report
from tests.support.worlds.view_runs import comparable, current_rows, summed_rows

_TS = ("ts", parse_type("timestamp"))
#: Before 1970, which Spark's own watermark does not support.
BEGIN = dt.datetime(1950, 1, 1, tzinfo=dt.UTC)
LEFT = "orders o JOIN items i ON i.id = o.id AND i.ts BETWEEN o.ts AND o.ts + INTERVAL '10' MINUTE"
ON = "s.id = o.id AND s.ts BETWEEN i.ts AND i.ts + INTERVAL '20' MINUTE AND s.n >= i.n"
QUERIES = {
    "inner": f"SELECT o.id, i.n, s.n AS m FROM {LEFT} JOIN shipments s ON {ON}",
    "left": f"SELECT o.id, i.n, s.n AS m FROM {LEFT} LEFT JOIN shipments s ON {ON}",
    "semi": f"SELECT o.id, i.n FROM {LEFT} LEFT SEMI JOIN shipments s ON {ON}",
    "anti": f"SELECT o.id, i.n FROM {LEFT} LEFT ANTI JOIN shipments s ON {ON} WHERE o.n < 4",
}
VIEW = (
    f"SELECT o.n AS g, count(*) AS c, sum(s.n) AS x FROM {LEFT} LEFT JOIN shipments s ON {ON} "
    "GROUP BY o.n"
)
NEAREST = (
    "SELECT o.id, o.ts, s.ts AS seen, s.n AS m FROM orders o ASOF LEFT JOIN shipments s "
    "ON s.id = o.id AND s.ts <= o.ts"
)
#: Lateness in minutes; no tuple is late.
LATENESS = 10


def write(folder: Path, batches: int = 8, per_batch: int = 30) -> tuple[Path, dict[str, pa.Table]]:
    """Write the scenario below ``folder``; return its file, and the rows of each stream."""
    tables = _streams(folder, batches, per_batch)
    scenario = folder / "scenario.yaml"
    streams = {
        name: {
            "path": f"{name}.parquet",
            "rows_per_batch": per_batch,
            "event_time": "ts",
            "lateness": f"{LATENESS} minutes",
        }
        for name in tables
    }
    queries = {
        name: {"sql": sql} for name, sql in {**QUERIES, "view": VIEW, "nearest": NEAREST}.items()
    }
    scenario.write_text(json.dumps({"streams": streams, "queries": queries}))
    return scenario, tables


def check(out: Path, tables: dict[str, pa.Table]) -> None:
    """Compare the results of a replay in ``out`` with DuckDB's.

    Raises:
        AssertionError: they differ.
    """
    assert not any(read_report(out)["late_tuples"].values())
    wanted = _wanted(tables)
    known = {
        name: Stream(
            StreamName(name),
            (("id", parse_type("bigint")), ("n", parse_type("int")), _TS),
            "ts",
            lateness=0,
        )
        for name in tables
    }
    view = parse_sql("view", VIEW, known).view
    assert view is not None
    shown = current_rows(out / "results" / "view", view)
    assert comparable(shown) == wanted.pop("view")
    nearest = comparable(summed_rows(out / "results" / "nearest"))
    assert nearest == wanted.pop("nearest")
    with duckdb.connect() as connection:
        for name, rows in wanted.items():
            folder = str(out / "results" / name / "*.parquet")
            found = connection.execute("SELECT * FROM read_parquet(?)", [folder]).fetchall()
            assert comparable(found) == rows, name
            assert rows, name


def _streams(folder: Path, batches: int, per_batch: int) -> dict[str, pa.Table]:
    tables = {}
    for number, name in enumerate(("orders", "items", "shipments")):
        rng = Random(number)
        rows = [
            {
                "id": None if rng.random() < 0.05 else rng.randrange(40),
                "n": rng.randrange(6),
                "ts": BEGIN
                + dt.timedelta(minutes=10 * (at // per_batch), seconds=rng.randrange(600)),
            }
            for at in range(batches * per_batch)
        ]
        schema = pa.schema(
            [("id", pa.int64()), ("n", pa.int32()), ("ts", pa.timestamp("us", "UTC"))]
        )
        tables[name] = pa.Table.from_pylist(rows, schema)
        pq.write_table(tables[name], folder / f"{name}.parquet")
    return tables


def _wanted(tables: dict[str, pa.Table]) -> dict[str, list[tuple[Any, ...]]]:
    with duckdb.connect() as connection:
        connection.execute("SET TimeZone = 'UTC'")
        for name, table in tables.items():
            connection.register(name, table)
        mark = f"((SELECT max(ts) FROM shipments) - INTERVAL {LATENESS} MINUTE)"
        over = f"i.ts + INTERVAL 20 MINUTE < {mark}"
        none = f"NOT EXISTS (SELECT 1 FROM shipments s WHERE {ON})"
        left = f"SELECT o.id, i.n, NULL AS m FROM {LEFT} WHERE {over} AND {none}"
        statements = {
            "inner": QUERIES["inner"],
            "left": f"{QUERIES['inner']} UNION ALL {left}",
            "semi": f"SELECT o.id, i.n FROM {LEFT} WHERE {over} AND {none.removeprefix('NOT ')}",
            "anti": f"SELECT o.id, i.n FROM {LEFT} WHERE {over} AND {none} AND o.n < 4",
            "view": f"SELECT n, count(*), sum(m) FROM (SELECT o.n, s.n AS m FROM {LEFT} JOIN "
            f"shipments s ON {ON} UNION ALL SELECT o.n, NULL FROM {LEFT} WHERE {over} AND {none}) "
            "GROUP BY n",
            "nearest": as_lateral(NEAREST, ("n",)),
        }
        return {n: comparable(connection.execute(s).fetchall()) for n, s in statements.items()}
