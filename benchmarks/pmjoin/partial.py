"""Intermediate results that leave out unprofitable values, compared with whole ones and with none.

`python -m benchmarks.pmjoin.partial [--json] [--rows 60000 240000]`

The real planner, driver and worker run in one process, with one task and without Spark. Three
streams are joined on one key. `r` has many rows, `s` and `t` have few, and a tenth of these have
one frequent value that does not occur in `r`. The stored join of `s` and `t` saves each tuple of
`r` a probe, but no probe ever reads its rows with the frequent value.

*none*: plans may have no intermediate result. *whole*: the planner knows neither frequent values
nor measured steps, so its intermediate result has all values. *partial*: the normal plan. After two
epochs of two batches, eight batches are measured. Runs of the three variants alternate; all must
have DuckDB's number of results. *rows* are rows of intermediate results at the end, *work* is the
number of probes and matches of all steps, including maintenance of intermediate results.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_client.replay.tpch import DemoQuery
from benchmarks.command import Benchmark, run_benchmark
from benchmarks.pmjoin.turns import Figures, in_turns, measured, pipeline, ratio
from benchmarks.pmjoin.workloads import Workload, counted
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

NAMES = "rst"
QUERY = DemoQuery("q", "r.k", "r JOIN s ON r.k = s.k JOIN t ON s.k = t.k", tuple(NAMES))
SIDES = ("none", "whole", "partial")
#: Batches per epoch, first batches that are not measured, and measured batches.
EVERY, WARM, MEASURED = 2, 4, 8
#: Number of values of the key; rows of `r` per row of `s` and of `t`; and the share of the rows of
#: `s` and `t` with the one frequent value.
VALUES, LESS, FREQUENT = 20_000, 40, 0.1


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, nargs="+", default=[60_000, 240_000], help="of r")
    parser.add_argument("--rounds", type=int, default=3)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all variants in turns; return the figures by number of rows and variant."""
    found = []
    for rows in options.rows:
        workload = _workload(rows)
        runs = in_turns(SIDES, options.rounds, lambda side: _run(workload, side, home / "run"))  # noqa: B023
        for side, some in runs.items():
            found.append(
                {
                    "rows": rows,
                    "results": workload.results["q"],
                    "side": side,
                    "stored": some[0]["stored"],
                    "work": some[0]["work"],
                    "time": ratio(some, runs["whole"], "seconds"),
                }
            )
            tell(str(found[-1]))
    return {"rows": found}


def _run(workload: Workload, side: str, home: Path) -> Figures:
    with pipeline(
        workload,
        home,
        every=EVERY,
        mir=side != "none",
        substreams=4 if side == "partial" else 1,
        blind=side == "whole",
    ) as engine:
        found = measured(engine, workload, WARM)
        stores = engine.driver.state.stores.values()
        stored = sum(s.rows for store in stores if not store.is_base for s in store.segments)
    return found | {"stored": stored}


def _workload(rows: int) -> Workload:
    """Generate the workload, with ``rows`` rows of `r` per batch."""
    batches = [
        {name: _table(name, rows, batch, at) for at, name in enumerate(NAMES)}
        for batch in range(WARM + MEASURED)
    ]
    return counted(f"{rows:,} rows", batches, (QUERY,))


def _table(name: str, rows: int, batch: int, stream: int) -> pa.Table:
    rng = np.random.default_rng((batch, stream))
    count = rows if name == "r" else rows // LESS
    keys = rng.integers(1, VALUES, count)
    if name != "r":
        keys[rng.random(count) < FREQUENT] = 0
    return pa.table({"k": keys})


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per number of rows and variant."""
    rows = [
        (
            row["side"],
            f"{row['rows']:,}",
            f"{row['results']:,}",
            f"{row['stored']:,.0f}",
            f"{row['work']:,.0f}",
            f"{row['time']['median']:.2f}",
        )
        for row in entry["rows"]
    ]
    heads = ("kept", "rows of r a batch", "results", "rows kept", "work", "time ×")
    return [Grid("rows of intermediate results", heads, tuple(rows), texts=1)]


BENCHMARK = Benchmark("partial", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("pmjoin", BENCHMARK, None, lambda _: None))
