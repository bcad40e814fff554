"""Orders per kind of value at run time: four streams joined on one key, by how many kinds.

`python -m benchmarks.pmjoin.skew [--json] [--kinds 1 2 4 8 64] [--rows 25000]`

The real planner, driver and worker in this process, one task, no Spark. Keys follow a Zipf
distribution; nothing expires. `different`: the heaviest values of the four streams are a quarter of
all values apart, so there are few results. `scattered`: each stream has them in an order of its
own, so some values are heavy in several streams, and there are many. `drifting`: different ones
that move with every epoch. `equal`: every value is as frequent in every stream. Two epochs of
100,000 tuples a batch come first, planned with no or few statistics; then four batches of `--rows`
for each stream are measured. Runs by different numbers of kinds take turns; all have to give as
many results.

*work* is probes and matches of all steps, as a ratio of that by one order for all tuples. *empty*
is the time of a batch of one row per stream at the end of the run, likewise, and *planning* that
of one plan by the statistics of the last epoch.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.sources.blocks import Block
from benchmarks.command import Benchmark, run_benchmark, spread
from benchmarks.engine import Engine, planned
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.session import WrongResultError
from tests.support.surroundings.redis import redis_url

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from numpy.typing import NDArray

NAMES = "rstu"
QUERY = DemoQuery(
    "q", "r.k", "r JOIN s ON r.k = s.k JOIN t ON s.k = t.k JOIN u ON t.k = u.k", tuple(NAMES)
)
#: Batches of an epoch, epochs that are not measured, and batches of one row per stream.
EVERY, WARM, EMPTY = 2, 2, 30
#: Batches that are measured, and rows per stream of those before.
MEASURED, FIRST = 4, 25_000
#: Where heavy values are, exponent, and values.
WORKLOADS = (
    ("different", 0.5, 20_000),
    ("different", 0.8, 20_000),
    ("different", 1.2, 20_000),
    ("different", 1.5, 20_000),
    ("scattered", 1.2, 20_000),
    ("drifting", 1.2, 20_000),
    ("equal", 0.3, 200_000),
)
#: Plans that are timed.
PLANS = 7


@dataclass(frozen=True, slots=True)
class Workload:
    """What arrives.

    Attributes:
        heavy: where the heavy values of the streams are; see the module.
        exponent: of the Zipf distribution. ``rows``: per stream and batch that is measured.
    """

    heavy: str
    exponent: float
    values: int
    rows: int

    def blocks(self, batch: int) -> list[Block]:
        """The rows of a batch, which are the same in every run."""
        shares = np.arange(1, self.values + 1, dtype=np.float64) ** -self.exponent
        ends = np.cumsum(shares / shares.sum())
        found = []
        for at, name in enumerate(NAMES):
            rng = np.random.default_rng((batch, at))
            rows = self.rows if batch >= WARM * EVERY else FIRST
            ranks = np.minimum(np.searchsorted(ends, rng.random(rows)), self.values - 1)
            found.append(_block(name, self._values(ranks, batch // EVERY, at)))
        return found

    def _values(self, ranks: NDArray[np.int64], epoch: int, stream: int) -> NDArray[np.int64]:
        """The value of each rank."""
        if self.heavy == "scattered":
            return np.random.default_rng((7, stream)).permutation(self.values)[ranks]
        shift = self.values // len(NAMES) * stream if self.heavy != "equal" else 0
        if self.heavy == "drifting":
            shift += self.values // 7 * epoch
        return (ranks + shift) % self.values


@dataclass(frozen=True, slots=True)
class Run:
    """What came of a run: figures of its measured batches.

    Attributes:
        work: probes and matches. ``substreams``: of all starts, in the last epoch.
        seconds: per batch. ``empty``: per batch of one row per stream.
        planning: seconds of one plan by the last statistics.
    """

    results: int
    work: int
    substreams: int
    seconds: tuple[float, ...]
    empty: float
    planning: float


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kinds", type=int, nargs="+", default=[1, 2, 4, 8, 64])
    parser.add_argument("--heavy", nargs="+", default=sorted({one[0] for one in WORKLOADS}))
    parser.add_argument("--exponents", type=float, nargs="+", default=[0.3, 0.5, 0.8, 1.2, 1.5])
    parser.add_argument("--rows", type=int, nargs="+", default=[2_500, 25_000], help="per stream")
    parser.add_argument("--rounds", type=int, default=3)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Figures by workload and number of kinds, which take turns."""
    rows = []
    for heavy, exponent, values in WORKLOADS:
        if heavy in options.heavy and exponent in options.exponents:
            for each in options.rows:
                workload = Workload(heavy, exponent, values, each)
                rows += _compared(workload, options.kinds, options.rounds, home)
    return {"rows": rows}


def _compared(
    workload: Workload, kinds: Sequence[int], rounds: int, home: Path
) -> list[dict[str, Any]]:
    runs: dict[int, list[Run]] = {most: [] for most in kinds}
    for _ in range(rounds):
        for most in kinds:
            runs[most].append(_run(workload, most, home / "run"))
    results = {run.results for some in runs.values() for run in some}
    if len(results) > 1:
        raise WrongResultError(f"{workload}: runs gave {sorted(results)} results")
    first = runs[kinds[0]]
    found = []
    for most, some in runs.items():
        pairs = list(zip(some, first, strict=True))
        found.append(
            {
                "heavy": workload.heavy,
                "exponent": workload.exponent,
                "rows": len(NAMES) * workload.rows,
                "results": some[0].results,
                "most": most,
                "chosen": some[0].substreams,
                "work": round(some[0].work / first[0].work, 3),
                "time": spread((_median(a) / _median(b) for a, b in pairs), 3),
                "empty": spread((a.empty / b.empty for a, b in pairs), 3),
                "planning": spread((a.planning / b.planning for a, b in pairs), 2),
            }
        )
        tell(str(found[-1]))
    return found


def _median(run: Run) -> float:
    return statistics.median(run.seconds)


def _run(workload: Workload, most: int, home: Path) -> Run:
    streams = [
        Stream(StreamName(name), (("k", parse_type("bigint")),), None, None) for name in NAMES
    ]
    with redis_url() as url:
        engine = Engine(home, url, streams, [QUERY], every=EVERY, substreams=most)
        seconds, work, results = [], 0, 0
        for batch in range(WARM * EVERY + MEASURED):
            blocks = workload.blocks(batch)
            took = engine.run(lambda task, tasks, some=blocks: some)  # type: ignore[misc]
            results += engine.results
            if batch >= WARM * EVERY:
                seconds.append(took)
                work += engine.work
        rules = engine.ruleset(WARM + MEASURED // EVERY - 1)
        known = engine.statistics()
        empty = []
        for batch in range(EMPTY):
            one = [_block(name, np.array([batch], np.int64)) for name in NAMES]
            empty.append(engine.run(lambda task, tasks, some=one: some))  # type: ignore[misc]
        plans = []
        for _ in range(PLANS):
            began = time.perf_counter()
            planned(streams, [QUERY], known, engine.options)
            plans.append(time.perf_counter() - began)
        engine.finish()
    shutil.rmtree(home)
    return Run(
        results,
        work,
        sum(one.count for one in rules.substreams),
        tuple(seconds),
        statistics.median(empty),
        statistics.median(plans),
    )


def _block(name: str, keys: NDArray[np.int64]) -> Block:
    return Block(name, pa.record_batch({"k": pa.array(keys, pa.int64())}))


def tables(entry: dict[str, Any]) -> list[Grid]:
    """One table: a row per workload and most kinds."""
    rows = [
        (
            row["heavy"],
            f"{row['exponent']:g}",
            f"{row['rows']:,}",
            str(row["most"]),
            str(row["chosen"]),
            f"{row['results']:,}",
            f"{row['work']:.3f}",
            *(f"{row[name]['median']:.2f}" for name in ("time", "empty", "planning")),
        )
        for row in entry["rows"]
    ]
    heads = ("heavy values", "Zipf", "tuples a batch", "kinds at most", "kinds of all starts",
             "results", "work ×", "time ×", "empty ×", "planning ×")  # fmt: skip
    return [Grid("orders per kind of value", heads, tuple(rows), texts=1)]


BENCHMARK = Benchmark("skew", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


def main(arguments: list[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark("pmjoin", BENCHMARK, arguments, lambda _: None)


if __name__ == "__main__":
    sys.exit(main())
