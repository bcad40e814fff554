"""Look-ahead filters, on and off: the real planner, driver and workers in one process.

`python -m benchmarks.pmjoin.looking_ahead [--json] [--rows 10000 100000] [--rounds 5]`

*Star*: a stream S joins R1, R2 and R3, each by its own key, so that a tuple of S has all three
keys. For 99 of 100 tuples of S, one randomly drawn key has no partner, and each of the other keys
finds about 12 rows on average at the end; the remaining tuples have partners by all keys. *One
key*: four streams are joined by one key; each has half of its values, drawn independently. Values
follow a Zipf distribution with exponent 1.2, and each stream has different frequent values. An
intermediate result must be stored completely, so filters may not drop tuples on the way to its
store: both workloads are planned without intermediate results and, for comparison, with them.
*TPC-H*: the five joins of `benchmarks.throughput`, where nearly all keys have partners; with
intermediate results, which is the default.

Every epoch of two batches is planned with the statistics of the previous epoch. Runs with and
without filters alternate; the first epoch, planned without statistics, is not measured. DuckDB
counts the expected results. *Asked* is the number of tuples that were looked up in a look-ahead
filter, *dropped* the number that it dropped. Ratios are medians with filters divided by medians
without; *look-ups* are probes plus look-ups in filters.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from anabranch_client.replay import tpch
from anabranch_client.replay.tpch import DemoQuery
from benchmarks.command import Benchmark, run_benchmark, spread
from benchmarks.pmjoin.turns import Figures, in_turns, pipeline, played
from benchmarks.pmjoin.workloads import Workload, counted, cut
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

Ints = NDArray[np.int64]


#: Batches per epoch.
EVERY = 2
#: Rows of all batches per value of a key; and for the star, rows of R per value of S's keys, on
#: average.
PER_VALUE, PER_KEY = 12, 2
#: Share of S's tuples that have partners by all keys.
WHOLE = 0.01
EXPONENT = 1.2
KEYS = ("a", "b", "c")
RIVALS = ("r1", "r2", "r3")
STAR = DemoQuery(
    "star",
    "s.n, r1.n AS n1, r2.n AS n2, r3.n AS n3",
    "s JOIN r1 ON s.a = r1.a JOIN r2 ON s.b = r2.b JOIN r3 ON s.c = r3.c",
    ("s", *RIVALS),
)
ONE_KEY = DemoQuery(
    "one key",
    "s.n, r1.n AS n1, r2.n AS n2, r3.n AS n3",
    "s JOIN r1 ON s.a = r1.a JOIN r2 ON s.a = r2.a JOIN r3 ON s.a = r3.a",
    ("s", *RIVALS),
)


@dataclass(frozen=True, slots=True)
class Side:
    """A way to plan a workload: with or without look-ahead filters and intermediate results."""

    mir: bool
    ahead: bool

    def __str__(self) -> str:
        return ("on" if self.ahead else "off") + (", with MIRs" if self.mir else "")


def star(rows: int, batches: int, seed: int) -> Workload:
    """Generate the star: ``rows`` rows of each stream per batch; S has three keys."""
    random, count = np.random.default_rng(seed), rows * batches
    values = count // PER_VALUE
    columns: dict[str, Ints] = {"n": np.arange(count)}
    lacking = np.where(random.random(count) < WHOLE, len(KEYS), random.integers(0, 3, count))
    made = {}
    for number, (key, rival) in enumerate(zip(KEYS, RIVALS, strict=True)):
        # Values that only S has are greater than the values of R.
        columns[key] = _drawn(random, count, values) + values * (lacking == number)
        made[rival] = pa.table({"n": np.arange(count), key: _drawn(random, count, values)})
    tables = {"s": pa.table(columns)} | made
    return counted(f"star, {rows:,} rows", cut(tables, batches), (STAR,))


def one_key(rows: int, batches: int, seed: int) -> Workload:
    """Generate four streams over one key, with ``rows`` rows of each per batch."""
    random, count = np.random.default_rng(seed), rows * batches
    values = count // PER_KEY
    tables = {}
    for name in ONE_KEY.tables:
        own = np.sort(random.permutation(values)[: values // 2])
        keys = own[_drawn(random, count, len(own))]
        tables[name] = pa.table({"n": np.arange(count), "a": keys})
    return counted(f"one key, {rows:,} rows", cut(tables, batches), (ONE_KEY,))


def _drawn(random: np.random.Generator, count: int, values: int) -> Ints:
    """Draw Zipf-distributed values from 0 on, with a random order of their frequencies."""
    weights = np.arange(1, values + 1) ** -EXPONENT
    ranks = random.choice(values, count, p=weights / weights.sum())
    found: Ints = random.permutation(values)[ranks]
    return found


def tpch_joins(folder: Path, scale: float, batches: int) -> Workload:
    """Make the workload of the five TPC-H joins, over tables in the order of TPC-H's generator."""
    tables = {s.name: pq.read_table(s.path) for s in tpch.generate(folder, scale, 1)}
    return counted("TPC-H", cut(tables, batches), tpch.QUERIES)


def run(workload: Workload, home: Path, side: Side) -> Figures:
    """Return wall and CPU seconds, and counts, of all batches after the first epoch.

    Raises:
        WrongResultError: DuckDB counts other results.
    """
    totals = dict.fromkeys((*TIMES, *COUNTS), 0.0)
    with pipeline(workload, home, every=EVERY, mir=side.mir, look_ahead=side.ahead) as engine:
        for batch in played(engine, workload):
            if batch.number < EVERY:
                continue
            totals["seconds"] += batch.seconds
            totals["cpu"] += batch.cpu
            for report in engine.reports:
                totals["probe"] += report.phases["probe"]
                for edge in report.measured.edges.values():
                    for name in COUNTS:
                        totals[name] += getattr(edge, name)
    return totals


TIMES = ("seconds", "cpu", "probe")
COUNTS = ("probes", "matches", "asked", "dropped")


def compared(workload: Workload, home: Path, rounds: int, *, alone: bool) -> dict[str, Any]:
    """Run all variants in turns, ``rounds`` times; ``alone``: also without intermediate results."""
    kinds = (False, True) if alone else (True,)
    sides = [Side(mir, ahead) for mir in kinds for ahead in (False, True)]
    tell(workload.name)
    runs = in_turns(sides, rounds, lambda side: run(workload, home / "run", side))
    return {
        "workload": workload.name,
        "results": dict(workload.results),
        "sides": {
            str(side): {name: spread((r[name] for r in found), 4) for name in found[0]}
            for side, found in runs.items()
        },
    }


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000])
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--scale", type=float, default=0.1, help="of TPC-H; 0: leave it out")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run all workloads with and without look-ahead filters; return the figures."""
    found = []
    for rows in options.rows:
        for make in (star, one_key):
            made = make(rows, options.batches, options.seed)
            found.append(compared(made, home, options.rounds, alone=True))
    if options.scale:
        made = tpch_joins(home / "tables", options.scale, options.batches)
        found.append(compared(made, home, options.rounds, alone=False))
    return {"workloads": found}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the tables: figures of each variant, and ratios."""
    sides, ratios = [], []
    for one in entry["workloads"]:
        medians = {
            name: {figure: found["median"] for figure, found in side.items()}
            for name, side in one["sides"].items()
        }
        for name, found in medians.items():
            counts = (f"{found[figure]:,.0f}" for figure in COUNTS)
            times = (f"{found[figure]:.2f}" for figure in TIMES)
            results = f"{sum(one['results'].values()):,}"
            sides.append((one["workload"], name, results, *counts, *times))
        for mir in ("", ", with MIRs"):
            if f"on{mir}" in medians:
                each = _ratios(medians[f"on{mir}"], medians[f"off{mir}"])
                ratios.append((one["workload"] + mir, *(f"{ratio:.3f}" for ratio in each)))
    head = ("workload", "looking ahead", "results", *COUNTS, "s", "CPU s", "probing s")
    compared = ("workload", "probes + matches", "look-ups + matches", "time", "CPU", "probing")
    return [
        Grid("looking ahead", head, tuple(sides), texts=2),
        Grid("on / off", compared, tuple(ratios)),
    ]


def _ratios(on: dict[str, float], off: dict[str, float]) -> list[float]:
    def work(side: dict[str, float]) -> float:
        return side["probes"] + side["matches"]

    return [
        work(on) / work(off),
        (work(on) + on["asked"]) / work(off),
        *(on[name] / off[name] for name in TIMES),
    ]


BENCHMARK = Benchmark("looking_ahead", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("pmjoin", BENCHMARK, None, lambda _: None))
