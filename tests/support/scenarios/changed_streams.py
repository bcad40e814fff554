"""Streams of changes and upserts for the fault grid, with their queries and oracle."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_planner.passes import parse_sql
from tests.support.plain_service import stream_of
from tests.support.scenarios.file import read_scenario
from tests.support.worlds.view_runs import comparable, current_rows, summed_rows

COLUMNS = {
    "x": {"k": pa.int64(), "v": pa.int64()},
    "y": {"k": pa.int64(), "w": pa.int64()},
}
#: A kept outer join, views over an inner and over an outer join, and values of neighbouring rows.
QUERIES = {
    "left_rows": "SELECT x.k, x.v, y.w FROM x LEFT JOIN y ON y.k = x.k",
    "both_sides": "SELECT x.v, y.w FROM x FULL JOIN y ON y.k = x.k AND y.w > 1",
    "groups": "SELECT x.k, count(*) AS n, sum(y.w) AS s, max(x.v) AS m, min(y.w) AS l "
    "FROM x JOIN y ON y.k = x.k GROUP BY x.k",
    "absent": "SELECT x.v, count(*) AS n FROM x ANTI JOIN y ON y.k = x.k GROUP BY x.v",
    "moved": "SELECT x.k, x.v, lag(x.v) OVER (PARTITION BY x.k ORDER BY x.v NULLS FIRST) AS p "
    "FROM x",
}
#: Rows of a stream per batch, and number of keys.
ROWS, KEYS = 4, 12


def add(document: dict[str, Any], folder: Path, batches: int) -> None:
    """Add the streams, with rows for ``batches``, and the queries to a scenario in ``folder``."""
    rng = Random(11)
    for name, rows in (("x", _changes(rng, batches)), ("y", _upserts(rng, batches))):
        values = list(zip(*rows, strict=True))
        kinds = (*COLUMNS[name].values(), pa.string())
        arrays = [pa.array(list(v), kind) for v, kind in zip(values, kinds, strict=True)]
        pq.write_table(pa.table(arrays, names=[*COLUMNS[name], "op"]), folder / f"{name}.parquet")
        document["streams"][name] = {
            "path": f"{name}.parquet",
            "rows_per_batch": ROWS,
            "kind": "changes" if name == "x" else "upsert",
            "changes": {"operation": "op"},
            **({} if name == "x" else {"key": ["k"], "retain": "all"}),
        }
    document["queries"] |= {name: {"sql": sql} for name, sql in QUERIES.items()}


def check(path: Path, results: Path) -> int:
    """Compare the queries of the scenario ``path`` with DuckDB over the net input; return the
    number of rows.

    Raises:
        AssertionError: they differ, or a query has no rows.
    """
    scenario = read_scenario(path)
    streams = {name: stream_of(scenario, name) for name in scenario.streams}
    rows = 0
    with duckdb.connect() as connection:
        for name, columns in COLUMNS.items():
            kept = _net(name, path.parent)
            arrays = [
                pa.array(list(v), kind)
                for v, kind in zip(zip(*kept, strict=True), columns.values(), strict=True)
            ]
            connection.register(name, pa.table(arrays, names=list(columns)))
        for name, sql in QUERIES.items():
            view = parse_sql(name, sql, streams).view
            folder = results / name
            found = summed_rows(folder) if view is None else current_rows(folder, view)
            wanted = comparable(connection.execute(sql).fetchall())
            assert comparable(found) == wanted, f"{name}: {sql}"
            assert wanted, name
            rows += len(wanted)
    return rows


def _changes(rng: Random, batches: int) -> list[tuple[Any, ...]]:
    """Draw inserts, and deletes of existing rows."""
    present: list[tuple[int, int]] = []
    found: list[tuple[Any, ...]] = []
    for _ in range(ROWS * batches):
        if present and rng.random() < (0.6 if len(present) > 3 * KEYS else 0.3):
            found.append((*present.pop(rng.randrange(len(present))), "delete"))
        else:
            present.append((rng.randrange(KEYS), rng.randrange(6)))
            found.append((*present[-1], "insert"))
    return found


def _upserts(rng: Random, batches: int) -> list[tuple[Any, ...]]:
    """Draw rows that replace earlier rows of their key, and tombstones."""
    return [
        (rng.randrange(KEYS), rng.randrange(5), "delete" if rng.random() < 0.25 else "insert")
        for _ in range(ROWS * batches)
    ]


def _net(name: str, folder: Path) -> list[tuple[Any, ...]]:
    """Return the net input of a stream."""
    rows = pq.read_table(folder / f"{name}.parquet").to_pylist()
    latest: dict[int, tuple[Any, ...]] = {}
    net: Counter[tuple[Any, ...]] = Counter()
    for row in rows:
        key, other, operation = row.values()
        net[key, other] += 1 if operation == "insert" else -1
        if operation == "insert":
            latest[key] = key, other
        else:
            latest.pop(key, None)
    return list(latest.values() if name == "y" else net.elements())


def without(document: dict[str, Any]) -> dict[str, Any]:
    """Return the scenario without these queries; the streams are only counted."""
    streams = {
        name: {k: v for k, v in one.items() if k in ("path", "rows_per_batch")}
        if name in COLUMNS
        else one
        for name, one in document["streams"].items()
    }
    queries = {name: one for name, one in document["queries"].items() if name not in QUERIES}
    return {**document, "streams": streams, "queries": queries}
