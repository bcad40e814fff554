"""Cost of commits to Delta and Iceberg tables by the runtime's writers, compared with Spark's.

Every writer commits the same file again and again, as ``--batches`` batches, to a separate table.
``current`` is the Delta table of a view: each commit merges the changed rows by key. Spark's
packages for both formats need an older Spark than the runtime's, which ``python -m
benchmarks.rivals install lakehouse`` installs; without it, Spark's figures are left out. Spark also
reads the runtime's tables, to check that each batch is there once.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.queries.views import CHANGE, VERSION, Change
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.sinks.lake import delta, iceberg
from anabranch_runtime.sources.lake.library import catalog_of
from benchmarks.command import Benchmark, made, run_benchmark, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.rivals.environment import Environment, RivalError
from benchmarks.session import WrongResultError

ENVIRONMENT = Environment("lakehouse")
#: Number of first commits that are not measured: programs are being loaded, and Java compiles.
_FIRST = 20
_ENGINE = Path(__file__).parents[1] / "rivals" / "lakehouse" / "engine.py"


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=1000, help="per batch")
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--keys", type=int, default=100_000, help="of the current table")
    parser.add_argument("--spark-batches", type=int, default=60, help="of Spark's writers")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run the commits of each writer; return figures of those after the first :data:`_FIRST`."""
    rows = pa.table(
        {
            "x": np.arange(options.rows),
            "s": pa.array(np.arange(options.rows)).cast(pa.string()),
        }
    )
    pq.write_table(rows, home / "input.parquet")
    warehouse = made(home / "warehouse")
    for name, text in (
        ("URI", f"sqlite:///{home}/catalog.db"),
        ("WAREHOUSE", f"file://{warehouse}"),
    ):
        os.environ[f"PYICEBERG_CATALOG__LAKE__{name}"] = text
    table = SinkSpec("delta", path=str(home / "runtime-delta"))
    listed = SinkSpec("iceberg", (("table", "lake.db.table"),))
    writers = {
        "delta": _commits(delta.commit, home, table, options.batches),
        "iceberg": _commits(iceberg.commit, home, listed, options.batches),
        "delta, current": _merges(home, options),
    }
    place = catalog_of("lake").load_table("db.table").metadata_location
    given = [f"delta={table.path}", f"iceberg={place}"]
    try:
        ENVIRONMENT.require()
    except RivalError as error:
        tell(f"Spark's writers are left out: {error}")
    else:
        total = [
            options.rows * options.batches,
            int(np.arange(options.rows).sum()) * options.batches,
        ]
        writers |= _spark(home, options.spark_batches, given, total)
    return {"writers": writers}


def _commits(
    commit: Callable[[Delivery, str], None], home: Path, sink: SinkSpec, batches: int
) -> dict[str, Any]:
    wall, used = [], []
    for number in range(batches):
        began, before = time.perf_counter(), time.process_time()
        commit(Delivery("q", sink, number, (home / "input.parquet",)), "benchmark")
        wall.append(time.perf_counter() - began)
        used.append(time.process_time() - before)
    return _figures(wall, used)


def _merges(home: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Commit versions of a view: upserts of random keys to a Delta table that has all keys."""
    random = np.random.default_rng(1)
    given = (("anabranch.key", "id"), ("anabranch.table", "current"))
    sink = SinkSpec("delta", given, str(home / "runtime-current"))
    wall, used = [], []
    for number in range(options.spark_batches + 1):
        keys = np.arange(options.keys)
        if number:
            keys = random.choice(keys, min(options.rows, options.keys), replace=False)
        changes = pa.table(
            {
                "id": keys,
                "x": random.random(len(keys)),
                CHANGE: pa.repeat(str(Change.UPSERT), len(keys)),
                VERSION: pa.repeat(number, len(keys)),
            }
        )
        pq.write_table(changes, home / "changes.parquet")
        began, before = time.perf_counter(), time.process_time()
        delta.commit(Delivery("v", sink, number, (home / "changes.parquet",)), "benchmark")
        wall.append(time.perf_counter() - began)
        used.append(time.process_time() - before)
    return _figures(wall, used)


def _spark(home: Path, batches: int, given: list[str], total: list[int]) -> dict[str, Any]:
    """Run Spark's commits; check that Spark reads ``total`` (rows, sum) from each of the ``given``
    tables.

    Raises:
        RivalError: the program failed.
        WrongResultError: Spark reads other rows.
    """
    python = ENVIRONMENT.folder / "bin" / "python"
    own = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "SPARK_HOME")}
    done = subprocess.run(
        [python, _ENGINE, ENVIRONMENT.jars, home, str(batches), *given],
        env=own,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RivalError(f"Spark failed:\n{done.stderr[-2000:]}")
    found = {}
    for line in map(json.loads, done.stdout.splitlines()):
        if "read" in line and line["read"] != total:
            raise WrongResultError(f"Spark reads {line['read']} of {line['format']}, not {total}")
        if "seconds" in line:
            name = f"{line['format']}, by Spark"
            found[name] = _figures(line["seconds"], line["cpu_seconds"])
    return found


def _figures(wall: list[float], used: list[float]) -> dict[str, Any]:
    first = min(_FIRST, len(wall) - 1)
    milliseconds = [1000 * one for one in wall[first:]]
    return {
        "ms": spread(milliseconds, 1),
        "last_ms": spread(milliseconds[-20:], 1),
        "cpu_ms": spread((1000 * one for one in used[first:]), 1),
    }


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per writer."""
    rows = [
        (name, shown(one["ms"], 1), shown(one["last_ms"], 1), shown(one["cpu_ms"], 1))
        for name, one in entry["writers"].items()
    ]
    return [Grid("lake", ("writer", "ms/commit", "the last 20", "CPU ms"), tuple(rows), texts=1)]


BENCHMARK = Benchmark("lake", "commits to Delta and Iceberg tables", _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("connectors", BENCHMARK, None, lambda _: None))
