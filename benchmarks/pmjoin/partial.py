"""Intermediate results that keep only the values that pay: against whole ones, and none.

`python -m benchmarks.pmjoin.partial [--json] [--rows 60000 240000]`

The real planner, driver and worker in this process, one task, no Spark. Three streams are joined on
one key. `r` brings many rows, `s` and `t` a few, of which a tenth have one value that `r`
lacks. What `s` and `t` have in common saves `r` a probe, and that value fills it for nothing.

*none*: no intermediate result may be kept. *whole*: the planner knows neither frequent values nor
what steps have brought, so it keeps one and all of it. *partial*: as the service plans. Two epochs
of two batches come first; then eight batches are measured. Sides take turns; all have to give as
many results. *rows* are those of intermediate results at the end, *work* is probes and matches of
all steps, upkeep included.
"""

from __future__ import annotations

import shutil
import statistics
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.sources.blocks import Block
from benchmarks.command import Benchmark, run_benchmark, spread
from benchmarks.engine import Engine
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.session import WrongResultError
from tests.support.surroundings.redis import redis_url

if TYPE_CHECKING:
    import argparse
    from pathlib import Path

NAMES = "rst"
QUERY = DemoQuery("q", "r.k", "r JOIN s ON r.k = s.k JOIN t ON s.k = t.k", tuple(NAMES))
SIDES = ("none", "whole", "partial")
#: Batches of an epoch, epochs that are not measured, and batches that are.
EVERY, WARM, MEASURED = 2, 2, 8
#: Values of the key; rows of `r` for each of `s` and of `t`, and of these the share of the one
#: frequent value.
VALUES, LESS, FREQUENT = 20_000, 40, 0.1


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run: figures of its measured batches.

    Attributes:
        stored: rows of intermediate results at the end. ``work``: probes and matches.
        seconds: per batch.
    """

    results: int
    stored: int
    work: int
    seconds: tuple[float, ...]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, nargs="+", default=[60_000, 240_000], help="of r")
    parser.add_argument("--rounds", type=int, default=3)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Figures by rows and side; sides take turns."""
    return {"rows": [row for rows in options.rows for row in _compared(rows, options, home)]}


def _compared(rows: int, options: argparse.Namespace, home: Path) -> list[dict[str, Any]]:
    runs: dict[str, list[Run]] = {side: [] for side in SIDES}
    for _ in range(options.rounds):
        for side in SIDES:
            runs[side].append(_run(rows, side, home / "run"))
    results = {run.results for some in runs.values() for run in some}
    if len(results) > 1:
        raise WrongResultError(f"{rows} rows: runs gave {sorted(results)} results")
    whole, found = runs["whole"], []
    for side, some in runs.items():
        pairs = list(zip(some, whole, strict=True))
        found.append(
            {
                "rows": rows,
                "results": some[0].results,
                "side": side,
                "stored": some[0].stored,
                "work": some[0].work,
                "time": spread((_median(a) / _median(b) for a, b in pairs), 3),
            }
        )
        tell(str(found[-1]))
    return found


def _median(run: Run) -> float:
    return statistics.median(run.seconds)


def _run(rows: int, side: str, home: Path) -> Run:
    streams = [
        Stream(StreamName(name), (("k", parse_type("bigint")),), None, None) for name in NAMES
    ]
    with redis_url() as url:
        engine = Engine(
            home,
            url,
            streams,
            [QUERY],
            every=EVERY,
            mir=side != "none",
            substreams=4 if side == "partial" else 1,
            blind=side == "whole",
        )
        seconds, work, results = [], 0, 0
        for batch in range(WARM * EVERY + MEASURED):
            blocks = _blocks(rows, batch)
            took = engine.run(lambda task, tasks, some=blocks: some)  # type: ignore[misc]
            results += engine.results
            if batch >= WARM * EVERY:
                seconds.append(took)
                work += engine.work
        stores = engine.driver.state.stores.values()
        stored = sum(s.rows for store in stores if not store.is_base for s in store.segments)
        engine.finish()
    shutil.rmtree(home)
    return Run(results, stored, work, tuple(seconds))


def _blocks(rows: int, batch: int) -> list[Block]:
    """The rows of a batch, which are the same in every run."""
    found = []
    for at, name in enumerate(NAMES):
        rng = np.random.default_rng((batch, at))
        count = rows if name == "r" else rows // LESS
        keys = rng.integers(1, VALUES, count)
        if name != "r":
            keys[rng.random(count) < FREQUENT] = 0
        found.append(Block(name, pa.record_batch({"k": pa.array(keys, pa.int64())})))
    return found


def tables(entry: dict[str, Any]) -> list[Grid]:
    """One table: a row per number of rows and side."""
    rows = [
        (
            row["side"],
            f"{row['rows']:,}",
            f"{row['results']:,}",
            f"{row['stored']:,}",
            f"{row['work']:,}",
            f"{row['time']['median']:.2f}",
        )
        for row in entry["rows"]
    ]
    heads = ("kept", "rows of r a batch", "results", "rows kept", "work", "time ×")
    return [Grid("what intermediate results keep", heads, tuple(rows), texts=1)]


BENCHMARK = Benchmark("partial", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark("pmjoin", BENCHMARK, arguments, lambda _: None)


if __name__ == "__main__":
    sys.exit(main())
