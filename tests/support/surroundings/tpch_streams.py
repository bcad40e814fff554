"""TPC-H's tables as streams in random order, and its queries over them, by ``anabranch replay``."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_planner.passes import parse_sql
from anabranch_planner.sql.dialects import to_spark
from anabranch_runtime.columns.arrow_types import spark_type
from tests.support.surroundings.tpc import Workload
from tests.support.worlds.replay_check import replay
from tests.support.worlds.view_runs import current_rows

#: Number of batches of a replay.
BATCHES = 5
#: The benchmark's tables.
TABLES = (
    "customer", "lineitem", "nation", "orders", "part", "partsupp", "region", "supplier",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Compared:
    """A view's rows at the end of its streams, and the batch query's.

    Averages and divisions are in floats, whose last digits depend on the order of the rows.
    """

    found: list[tuple[Any, ...]]
    wanted: list[tuple[Any, ...]]

    def difference(self) -> str | None:
        """First difference of the rows; None: they are equal."""
        if len(self.found) != len(self.wanted):
            return f"{len(self.found)} rows, not {len(self.wanted)}"
        floats = {i for row in self.wanted for i, v in enumerate(row) if isinstance(v, float)}
        for one, other in zip(_by(self.found, floats), _by(self.wanted, floats), strict=True):
            for i, (a, b) in enumerate(zip(one, other, strict=True)):
                near = i in floats and None not in (a, b) and _near(float(a), float(b))
                if a != b and not near:
                    return f"{one} instead of {other}"
        return None


def _by(rows: list[tuple[Any, ...]], floats: set[int]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=lambda r: repr([v for i, v in enumerate(r) if i not in floats]))


def _near(a: float, b: float) -> bool:
    return abs(a - b) <= 1e-6 + 1e-9 * abs(b)


def run(
    workload: Workload,
    statements: Mapping[str, str],
    folder: Path,
    seed: int,
    batches: int = BATCHES,
) -> dict[str, Compared]:
    """Register ``statements`` (in DuckDB's dialect), stream all rows, and compare the results at
    the end.

    Raises:
        AssertionError: the replay has failed; with its output.
    """
    folder.mkdir(parents=True, exist_ok=True)
    tables = {name: pq.read_table(workload.folder / f"{name}.parquet") for name in TABLES}
    streams = {}
    for number, (name, table) in enumerate(tables.items()):
        order = list(range(table.num_rows))
        Random(seed * 100 + number).shuffle(order)
        pq.write_table(table.take(pa.array(order)), folder / f"{name}.parquet")
        streams[name] = {"path": f"{name}.parquet", "rows_per_batch": -(-len(order) // batches)}
    known = streams_of(workload)
    queries = {name: {"sql": to_spark(sql, "duckdb", known)} for name, sql in statements.items()}
    scenario = folder / "scenario.yaml"
    scenario.write_text(json.dumps({"streams": streams, "queries": queries}))
    done = replay(scenario, folder / "out")
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]
    found = {}
    for name, sql in statements.items():
        view = parse_sql(name, queries[name]["sql"], known).view
        assert view is not None
        rows = current_rows(folder / "out" / "results" / name, view)
        found[name] = Compared(plain(rows), plain(_batch(tables, sql)))
    return found


def streams_of(workload: Workload) -> dict[str, Stream]:
    """Return the tables as streams."""
    found: dict[str, Stream] = {}
    for name in TABLES:
        schema = pq.read_schema(workload.folder / f"{name}.parquet")
        found[name] = Stream(StreamName(name), tuple((c.name, spark_type(c.type)) for c in schema))
    return found


def _batch(tables: Mapping[str, pa.Table], sql: str) -> list[tuple[Any, ...]]:
    with duckdb.connect() as connection:
        for name, table in tables.items():
            connection.register(name, table)
        return connection.execute(sql).fetchall()


def plain(rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows with decimals in one notation."""
    return [tuple(v.normalize() + 0 if isinstance(v, Decimal) else v for v in r) for r in rows]
