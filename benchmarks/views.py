"""Cost of keeping a view up to date, compared with computing it from scratch.

``python -m benchmarks.views [--json]``

Joined rows arrive in versions of equal size; each is included in the view before the next one
arrives. ``version``: seconds from the commit of a batch to the view's changes in its sink, of
versions after the first. ``anew_s``: seconds that DuckDB takes for the same statement over all rows
so far, in memory, at the last version. The cost of a view depends on a version's rows and the
groups that these change, the cost of computing from scratch on all rows so far. At the end both
must have the same result.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa

from anabranch_runtime.driver.tables import MaintainedTables
from benchmarks.report import figures
from tests.support.worlds.kept_tables import here
from tests.support.worlds.view_runs import MINUTE, SCHEMA, Drawn, ViewRun

_BUCKET = "time_bucket(INTERVAL 10 MINUTE, ts)"
#: The views, in Spark's SQL and in DuckDB's.
VIEWS = {
    "groups": Drawn(
        "SELECT k, count(*) AS c, sum(d) AS s, max(n) AS m FROM t GROUP BY k",
        "SELECT k, count(*) AS c, sum(d) AS s, max(n) AS m FROM t GROUP BY k",
    ),
    "windows": Drawn(
        "SELECT window.start, g, count(*) AS c FROM t GROUP BY window(ts, '10 minutes'), g",
        f"SELECT {_BUCKET}, g, count(*) AS c FROM t GROUP BY ALL",
    ),
    "top groups": Drawn(
        "SELECT k, sum(d) AS s FROM t GROUP BY k ORDER BY s DESC, k LIMIT 10",
        "SELECT k, sum(d) AS s FROM t GROUP BY k ORDER BY s DESC, k LIMIT 10",
    ),
    "top rows": Drawn(
        "SELECT n, k FROM t ORDER BY n DESC LIMIT 10",
        "SELECT n, k FROM t ORDER BY n DESC, k LIMIT 10",
    ),
}


def _rows(draw: np.random.Generator, version: int, count: int, groups: int) -> pa.RecordBatch:
    """Generate rows with ``groups`` keys; a version spans ten minutes of event time."""
    base = 1_704_067_200_000_000 + version * 10 * MINUTE

    def kind(name: str) -> pa.DataType:
        return SCHEMA.field(name).type

    columns = [
        pa.array(draw.integers(0, groups, count), pa.int32()),
        pa.array(np.array(["a", "b", "c", "d"])[draw.integers(0, 4, count)]),
        pa.array(draw.integers(0, 10_000, count)).cast(pa.decimal128(38, 2)).cast(kind("d")),
        pa.array(draw.random(count) < 0.5),
        pa.array(draw.integers(0, 1 << 40, count)),
        pa.array(base + draw.integers(0, 10 * MINUTE, count)).cast(kind("ts")),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def _prompt(folder: Path) -> MaintainedTables:
    """Return a ``MaintainedTables`` that includes every round at once."""
    return here(folder / "state", folder / "results", {}, lambda *_: None)


def measure(folder: Path, name: str, versions: int, count: int, groups: int) -> dict[str, Any]:
    """Measure one view over ``versions`` versions of ``count`` rows.

    Raises:
        AssertionError: view and oracle differ at the end.
    """
    run = ViewRun(folder, VIEWS[name])
    run.world.make = lambda: _prompt(folder)
    run.restart()
    draw = np.random.default_rng(1)
    spent = []
    try:
        for version in range(versions):
            rows = _rows(draw, version, count, groups)
            mark = 1_704_067_200_000_000 + version * 10 * MINUTE
            began = time.perf_counter()
            run.feed(rows, mark)
            run.tables.drain()
            spent.append(time.perf_counter() - began)
        with duckdb.connect() as connection:
            connection.execute("SET TimeZone = 'UTC'")
            connection.register("t", pa.Table.from_batches(run.rows))
            anew = []
            for _ in range(5):
                began = time.perf_counter()
                connection.execute(VIEWS[name].duck).fetchall()
                anew.append(time.perf_counter() - began)
        assert run.table() == run.wanted(), name
    finally:
        run.tables.close()
    again = statistics.median(anew)
    middle = statistics.median(spent[1:])
    return {
        "view": name,
        "rows": count,
        "groups": groups,
        "versions": versions,
        "first_s": round(spent[0], 3),
        "version_s": round(middle, 3),
        "rows_per_s": round(count / middle),
        "anew_s": round(again, 4),
        "anew_over_version": round(again / middle, 3),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description="what views cost")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--views", nargs="+", choices=list(VIEWS), default=list(VIEWS))
    parser.add_argument("--rows", type=int, nargs="+", default=[1_000, 100_000])
    parser.add_argument("--groups", type=int, nargs="+", default=[100, 100_000])
    parser.add_argument("--versions", type=int, default=15)
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    home = Path(tempfile.mkdtemp(prefix="anabranch-views-"))
    found = []
    try:
        for name in options.views:
            for count in options.rows:
                for groups in options.groups:
                    folder = home / f"{name}-{count}-{groups}"
                    one = measure(folder, name, options.versions, count, groups)
                    figures.tell(
                        f"{name}, {count:,} rows a version, {groups:,} keys: {one['version_s']} s"
                        f" a version, {one['rows_per_s']:,} rows/s; anew {one['anew_s']} s"
                    )
                    found.append(one)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    if options.json:
        settings = {n: v for n, v in vars(options).items() if n != "json"}
        document = figures.document("views", settings, load) | {"views": found}
        sys.stdout.write(figures.line(document) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
