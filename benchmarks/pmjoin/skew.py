"""Probe orders per substream at run time: cost of joins of four streams, by number of substreams.

`python -m benchmarks.pmjoin.skew [--json] [--kinds 1 2 4 8 64] [--sizes 10000 100000 1000000]`

The real planner, driver and worker run in one process, with one task and without Spark. Keys follow
a Zipf distribution; nothing expires. All four streams are joined on one key, except in `chain`.
`different`: the most frequent values of the four streams are a quarter of the value range apart, so
there are few results. `scattered`: each stream has its own random order of values, so some values
are frequent in several streams, and there are many results. `drifting`: as `different`, but the
frequent values move with every epoch. `equal`: each value has the same frequency in all streams.
`chain`: r and s are joined by one key, s, t and u by another; frequent values are as in
`different`. The first two epochs of two batches are planned with no or few statistics; their
batches have 100,000 tuples, or as many as the measured ones if these are larger. Then four batches
are measured (two if batches have a million tuples, or very many results). Runs with different
numbers of substreams (*kinds*) alternate; all must have DuckDB's number of results.

*work* is the number of probes and matches of all steps, *time* the run time of the measured
batches, and *CPU* their CPU time plus that of planning: all as ratios to runs with one probe order
for all tuples of a stream. Plans may have intermediate results (MIRs) unless stated otherwise.
*Empty* is the time of a batch of one row per stream at the end of the run, and *planning* the time
of making one plan from the statistics of the last epoch. *Each value* is the calculated work,
without MIRs, if every value of the key had its cheapest order in each batch; *of 64*, if only the
64 most frequent values of each stream had theirs.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import permutations
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_client.replay.tpch import DemoQuery
from anabranch_contract.queries.joins import StreamName
from anabranch_runtime.sources.blocks import Block
from benchmarks.command import Benchmark, run_benchmark
from benchmarks.pmjoin.turns import (
    Figures,
    in_turns,
    kinds_chosen,
    measured,
    pipeline,
    planning_seconds,
    ratio,
)
from benchmarks.pmjoin.workloads import Workload, counted
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

NAMES = "rstu"
ONE_KEY = DemoQuery(
    "q", "r.a", "r JOIN s ON r.a = s.a JOIN t ON s.a = t.a JOIN u ON t.a = u.a", tuple(NAMES)
)
CHAIN = DemoQuery(
    "q", "r.a, u.b", "r JOIN s ON r.a = s.a JOIN t ON s.b = t.b JOIN u ON t.b = u.b", tuple(NAMES)
)
#: Shape -> key columns of each stream.
KEYS = {"one key": ("a", "a", "a", "a"), "chain": ("a", "ab", "b", "b")}
#: Batches per epoch; number of first batches that are not measured, and least number of tuples in
#: them.
EVERY, WARM, FIRST = 2, 4, 100_000
#: Number of batches of one row per stream; their median is reported.
EMPTY = 30
#: Numbers of substreams that are also planned without intermediate results.
ALONE = (1, 4)
#: Figures that are compared between runs.
TIMES = ("seconds", "cpu", "empty", "planning")
#: Number of frequent values of a stream that the planner knows.
LISTED = 64


@dataclass(frozen=True, slots=True)
class Skew:
    """A workload of four streams with skewed keys.

    Attributes:
        heavy: relation between the frequent values of the streams; see the module's docstring.
        exponent: exponent of the Zipf distribution. ``values``: number of values of each key.
        size: number of tuples of all streams in a measured batch. ``measured``: number of such
            batches.
    """

    heavy: str
    exponent: float
    values: int
    size: int = 100_000
    measured: int = 4

    @property
    def keys(self) -> tuple[str, ...]:
        """Key columns of each stream."""
        return KEYS.get(self.heavy, KEYS["one key"])

    def workload(self) -> Workload:
        """Generate the rows."""
        batches = [
            {name: self._table(batch, at) for at, name in enumerate(NAMES)}
            for batch in range(WARM + self.measured)
        ]
        query = CHAIN if self.heavy == "chain" else ONE_KEY
        return counted(f"{self.heavy}, {self.exponent:g}, {self.size:,}", batches, (query,))

    def _table(self, batch: int, stream: int) -> pa.Table:
        rng = np.random.default_rng((batch, stream))
        shares = np.arange(1, self.values + 1, dtype=np.float64) ** -self.exponent
        ends = np.cumsum(shares / shares.sum())
        rows = (self.size if batch >= WARM else max(self.size, FIRST)) // len(NAMES)
        columns = {}
        for key in self.keys[stream]:
            ranks = np.minimum(np.searchsorted(ends, rng.random(rows)), self.values - 1)
            columns[key] = self._values(ranks, batch // EVERY, stream)
        return pa.table(columns)

    def _values(self, ranks: NDArray[np.int64], epoch: int, stream: int) -> NDArray[np.int64]:
        """Return the value of each frequency rank in an epoch."""
        if self.heavy == "scattered":
            return np.random.default_rng((7, stream)).permutation(self.values)[ranks]
        shift = self.values // len(NAMES) * stream if self.heavy != "equal" else 0
        if self.heavy == "drifting":
            shift += self.values // 7 * epoch
        return (ranks + shift) % self.values


@dataclass(frozen=True, slots=True)
class Side:
    """A way to plan: maximum number of substreams, and whether with intermediate results."""

    most: int
    mir: bool = True


SKEWS = (
    Skew("different", 0.5, 20_000, measured=2),
    Skew("different", 0.8, 20_000),
    Skew("different", 1.2, 20_000, 10_000),
    Skew("different", 1.2, 20_000),
    # With 20,000 values there would be some eighty million results.
    Skew("different", 1.2, 80_000, 1_000_000, 2),
    Skew("different", 1.2, 120_000, 1_000_000, 2),
    Skew("different", 1.5, 20_000),
    Skew("scattered", 1.2, 20_000),
    Skew("drifting", 1.2, 20_000),
    Skew("equal", 0.3, 200_000),
    Skew("chain", 1.2, 20_000, 10_000),
    Skew("chain", 1.2, 20_000),
    Skew("chain", 1.2, 80_000, 1_000_000, 2),
)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--kinds", type=int, nargs="+", default=[1, 2, 4, 8, 64])
    parser.add_argument("--heavy", nargs="+", default=sorted({one.heavy for one in SKEWS}))
    parser.add_argument("--sizes", type=int, nargs="+", default=sorted({s.size for s in SKEWS}))
    parser.add_argument("--rounds", type=int, default=3)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all workloads with different numbers of substreams in turns; return the figures."""
    rows = []
    for skew in SKEWS:
        if skew.heavy in options.heavy and skew.size in options.sizes:
            rows += _compared(skew, options.kinds, options.rounds, home / "run")
    return {"rows": rows}


def _compared(skew: Skew, kinds: Sequence[int], rounds: int, home: Path) -> list[dict[str, Any]]:
    workload = skew.workload()
    sides = [Side(most) for most in kinds]
    sides += [Side(most, mir=False) for most in kinds if most in ALONE]
    runs = in_turns(sides, rounds, lambda side: _run(workload, side, home))
    first = runs[sides[0]]
    about = asdict(skew) | {"results": workload.results["q"]}
    if skew.heavy != "chain":
        bounds = own_orders(workload)
        about |= {name: round(work / first[0]["work"], 3) for name, work in bounds.items()}
    found = []
    for side, some in runs.items():
        ratios = {name: ratio(some, first, name) for name in TIMES}
        work = round(some[0]["work"] / first[0]["work"], 3)
        chosen = some[0]["chosen"]
        found.append({**about, **asdict(side), "chosen": chosen, "work": work, **ratios})
        tell(str(found[-1]))
    return found


def _run(workload: Workload, side: Side, home: Path) -> Figures:
    with pipeline(workload, home, every=EVERY, substreams=side.most, mir=side.mir) as engine:
        found = measured(engine, workload, WARM)
        chosen, planning = kinds_chosen(engine), planning_seconds(engine)
        empty = []
        for number in range(EMPTY):
            blocks = [
                Block(StreamName(s.name), pa.record_batch({k: [number] for k, _ in s.columns}))
                for s in workload.streams
            ]
            empty.append(engine.run(lambda task, tasks, some=blocks: some))  # type: ignore[misc]
    return found | {"chosen": chosen, "planning": planning, "empty": statistics.median(empty)}


def own_orders(workload: Workload) -> Figures:
    """Calculate probes and matches of the measured batches over one key: ``each`` if every value
    had its cheapest order in the batch, ``listed`` if only the most frequent values of each stream
    had. Of its own batch, a tuple finds the rows of streams before its own.
    """
    columns = [[rows[name]["a"].to_numpy() for name in NAMES] for rows in workload.batches]
    values = 1 + max(int(keys.max()) for batch in columns for keys in batch)
    counts = np.array([[np.bincount(keys, minlength=values) for keys in b] for b in columns], float)
    before = counts.cumsum(axis=0) - counts
    frequent = np.argsort(-counts.sum(axis=0), axis=1)[:, :LISTED].ravel()
    listed = np.isin(np.arange(values), frequent)
    found = dict.fromkeys(("each", "listed"), 0.0)
    for batch in range(WARM, len(counts)):
        for stream, arriving in enumerate(counts[batch]):
            stored = before[batch].copy()
            stored[:stream] += counts[batch, :stream]
            others = np.delete(stored, stream, axis=0)
            costs = np.array([_work(arriving, some) for some in permutations(others)])
            found["each"] += costs.min(axis=0).sum()
            found["listed"] += costs[:, listed].min(axis=0).sum()
            found["listed"] += costs[:, ~listed].sum(axis=1).min()
    return {name: float(work) for name, work in found.items()}


def _work(arriving: NDArray[np.float64], stores: Sequence[NDArray[np.float64]]) -> Any:
    """Return the probes and matches of each value if tuples probe the stores in this order."""
    sent, total = arriving, np.zeros_like(arriving)
    for store in stores:
        total += sent * (1 + store)
        sent = sent * store
    return total


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per workload and maximum number of substreams."""
    rows = [
        (
            row["heavy"],
            f"{row['exponent']:g}",
            f"{row['size']:,}",
            f"{row['values']:,}",
            f"{row['results']:,}",
            f"{row['most']}{'' if row['mir'] else ', no MIRs'}",
            f"{row['chosen']:.0f}",
            f"{row['work']:.3f}",
            *(f"{row[name]:.3f}" if name in row else "" for name in ("each", "listed")),
            "{median:.2f} ({low:.2f}–{high:.2f})".format(**row["seconds"]),
            *(f"{row[name]['median']:.2f}" for name in TIMES[1:]),
        )
        for row in entry["rows"]
    ]
    heads = ("heavy values", "Zipf", "tuples a batch", "values", "results", "kinds at most",
             "kinds of all starts", "work ×", "each value ×", "of 64 ×", "time ×", "CPU ×",
             "empty ×", "planning ×")  # fmt: skip
    return [Grid("orders per substream", heads, tuple(rows), texts=1)]


BENCHMARK = Benchmark("skew", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("pmjoin", BENCHMARK, None, lambda _: None))
