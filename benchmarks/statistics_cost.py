"""CPU cost of collecting statistics: the same batches with and without, in this process.

``python -m benchmarks.statistics_cost [--json] [--scale 0.1] [--batches 16] [--rounds 7]``

The real driver and worker run with one task, without Spark, whose cost would only make the share
smaller. Runs with and without statistics have the same rulesets, so they compute the same joins;
they alternate. They are compared by the CPU time of every batch: reading, storing, probing,
writing, folding, the manifest, and the report at each epoch's end. ``tpch`` is the five joins of
``benchmarks.throughput``: no event time, 33 key sketches. ``events`` is a windowed join of three
disordered streams, so delays are measured as well.

``share`` is the difference of the two kinds of runs, relative to the CPU time; on a machine with
other work it is mostly noise. ``inside`` is the CPU time inside the functions that collect
statistics: it is stable, but misses their effect on CPU caches. The first batches cost more than
later ones, since values that were seen before cost less.

Some statistics are not switched off: counters that cost a few additions per batch, two readings of
the clock per probe of up to 65,536 tuples (about a microsecond), and the counting of reads
(``docs/statistics.md``).
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import redis
import structlog

from anabranch_client.replay import tpch
from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.columns.arrow_types import spark_type
from anabranch_runtime.control import Control, fetch_ruleset
from anabranch_runtime.driver import driver as driver_module
from anabranch_runtime.driver import fold_reports as fold
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.driver.reporting.interim_reporter import InterimReporter
from anabranch_runtime.driver.settings import DriverSettings
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.measure.statistics import Samples
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.task.context import BatchContext
from anabranch_runtime.task.meters import Collector
from anabranch_runtime.task.worker import run_task
from benchmarks.report.figures import Spread, document, line, tell
from tests.support.surroundings.redis import redis_url

#: Batches per epoch, the runtime's default.
EPOCH_BATCHES = 4
NAMESPACE = "cost"
KEYS = Keys(NAMESPACE)
_HOUR = 3_600_000_000


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload: streams with their rows, and queries over them."""

    name: str
    streams: tuple[Stream, ...]
    tables: Mapping[str, pa.Table]
    queries: Mapping[str, tuple[str, int | None]]

    @property
    def tuples(self) -> int:
        """Number of rows of all streams."""
        return sum(t.num_rows for t in self.tables.values())


def tpch_joins(folder: Path, scale: float) -> Workload:
    """Make the workload of the five TPC-H joins, over tables in the order of TPC-H's generator."""
    tables = {s.name: pq.read_table(s.path) for s in tpch.generate(folder, scale, 1)}
    return Workload(
        "tpch",
        tuple(_stream(name, table) for name, table in tables.items()),
        tables,
        {q.name: (q.sql, None) for q in tpch.QUERIES},
    )


def events(rows: int, seed: int = 5) -> Workload:
    """Generate three streams over a day, joined within an hour; most tuples are minutes behind."""
    random = np.random.default_rng(seed)
    tables = {}
    for name, other in (("a", "x"), ("b", "y"), ("c", "z")):
        order = np.sort(random.integers(0, 24 * _HOUR, rows))
        late = random.exponential(60e6, rows) * (random.random(rows) < 0.66)
        tables[name] = pa.table(
            {
                "k": random.integers(0, rows // 8, rows),
                other: [f"{v:06x}" for v in random.integers(0, 1 << 24, rows).tolist()],
                "ts": pa.array(order - late.astype(np.int64), pa.timestamp("us", tz="UTC")),
            }
        )
    streams = tuple(_stream(name, table, "ts", 20 * 60_000_000) for name, table in tables.items())
    sql = "SELECT a.x, b.y, c.z FROM a JOIN b ON a.k = b.k JOIN c ON b.k = c.k"
    return Workload("events", streams, tables, {"q": (sql, _HOUR)})


def _stream(
    name: str, table: pa.Table, event_time: str | None = None, lateness: int | None = None
) -> Stream:
    columns = tuple((f.name, spark_type(f.type)) for f in table.schema)
    return Stream(StreamName(name), columns, event_time, lateness)


@dataclass(frozen=True, slots=True)
class Run:
    """CPU seconds per batch, those inside collecting functions, and the size of a full manifest."""

    cpu: tuple[float, ...]
    results: dict[str, int]
    manifest_bytes: int
    inside: tuple[float, ...]


@contextmanager
def _metered() -> Iterator[list[float]]:
    """Context that adds up the CPU seconds inside the functions that collect statistics."""
    spent = [0.0]
    depth = [0]

    def timed(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **named: Any) -> Any:
            depth[0] += 1
            started = time.process_time()
            try:
                return function(*arguments, **named)
            finally:
                depth[0] -= 1
                if not depth[0]:
                    spent[0] += time.process_time() - started

        return call

    owners: list[tuple[Any, str]] = [
        *((Collector, name) for name in ("block", "keys", "frequent", "stored", "sampled")),
        *((Samples, name) for name in ("add", "bounds", "changed")),
        (fold, "measured"),
        (fold, "distincts"),
        (fold, "frequent_values"),
        (fold, "store_statistics"),
        (fold, "stream_statistics"),
        (driver_module, "bounds"),
        (InterimReporter, "committed"),
        (Control, "report_samples"),
    ]
    kept = [getattr(owner, name) for owner, name in owners]
    for (owner, name), function in zip(owners, kept, strict=True):
        setattr(owner, name, timed(function))
    try:
        yield spent
    finally:
        for (owner, name), function in zip(owners, kept, strict=True):
            setattr(owner, name, function)


def run(
    workload: Workload,
    home: Path,
    url: str,
    batches: int,
    *,
    collect: bool,
    interim_seconds: float = 3.0,
) -> Run:
    """Run all batches of ``workload``, with or without statistics.

    Afterwards, Redis at ``url`` has the measurement periods.
    """
    shutil.rmtree(home, ignore_errors=True)
    state = home / "state"
    state.mkdir(parents=True)
    redis.Redis.from_url(url).flushall()
    fetch_ruleset.cache_clear()
    _publish(workload, url, batches)
    control = Control(url, NAMESPACE)
    settings = DriverSettings(
        state,
        home / "results",
        EPOCH_BATCHES,
        mode=Mode.STEP,
        patience=5,
        interim_seconds=interim_seconds,
    )
    driver = Driver(settings, control, batches)
    driver.announce()
    seconds, inside = [], []
    for batch in range(batches):
        blocks = _blocks(workload, batch, batches)

        def job(context: BatchContext, blocks: list[Block] = blocks) -> list[TaskReport]:
            rules = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
            return [
                run_task(
                    context,
                    rules,
                    blocks,
                    task=0,
                    tasks=1,
                    exchange=lambda message: [message],
                    collect=collect,
                )
            ]

        with _metered() as spent:
            started = time.process_time()
            driver.run(job)
            seconds.append(time.process_time() - started)
        inside.append(spent[0])
    # The largest manifest is a full one, not a difference.
    sizes = [path.stat().st_size for path in (state / "manifest").iterdir()]
    found = {name: q.results for name, q in driver.state.queries.items()}
    return Run(tuple(seconds), found, max(sizes), tuple(inside))


def _publish(workload: Workload, url: str, batches: int) -> None:
    """Publish one plan for all epochs, so that it does not depend on collected statistics."""
    by_name: dict[str, Stream] = {s.name: s for s in workload.streams}
    queries = [
        parse_sql(name, sql, by_name, window) for name, (sql, window) in workload.queries.items()
    ]
    plan = optimise(queries, Statistics(), Options(parallelism=2))
    connection, keys = redis.Redis.from_url(url), KEYS
    for epoch in range(-(-batches // EPOCH_BATCHES) + 1):
        rules = compile_ruleset(
            plan, queries, workload.streams, epoch=epoch, parallelism=2, sinks={}
        )
        connection.set(keys.ruleset(epoch), rulesets.dumps(rules))
        connection.zadd(keys.published, {str(epoch): epoch})


def _blocks(workload: Workload, batch: int, batches: int) -> list[Block]:
    found = []
    for name, table in workload.tables.items():
        first = table.num_rows * batch // batches
        last = table.num_rows * (batch + 1) // batches
        found += [
            Block(StreamName(name), b)
            for b in table.slice(first, last - first).combine_chunks().to_batches()
        ]
    return found


def measure(workload: Workload, home: Path, url: str, batches: int, rounds: int) -> dict[str, Any]:
    """Return the cost of collecting statistics over ``rounds`` rounds of alternating runs."""
    run(workload, home, url, batches, collect=True)
    shares, within, later, plain, sizes = [], [], [], [], (0, 0)
    half = batches // 2
    for number in range(rounds):
        found: dict[bool, Run] = {}
        for collect in (True, False) if number % 2 else (False, True):
            found[collect] = run(workload, home, url, batches, collect=collect)
        on, off = found[True], found[False]
        if on.results != off.results:
            raise ValueError("not the same results with and without statistics")
        shares.append(1 - sum(off.cpu) / sum(on.cpu))
        within.append(sum(on.inside) / sum(on.cpu))
        later.append(sum(on.inside[half:]) / sum(on.cpu[half:]))
        plain.append(sum(off.cpu))
        sizes = (on.manifest_bytes, off.manifest_bytes)
        tell(
            f"{workload.name} round {number + 1}: {100 * shares[-1]:.2f} % "
            f"(inside {100 * within[-1]:.2f} %, "
            f"in the later half {100 * later[-1]:.2f} %) of {sum(on.cpu):.2f} s"
        )
    return {
        "workload": workload.name,
        "tuples": workload.tuples,
        "share": Spread.of(shares).rounded(4),
        "inside": Spread.of(within).rounded(4),
        "inside_later_half": Spread.of(later).rounded(4),
        "cpu_seconds_without": round(statistics.median(plain), 3),
        "manifest_bytes": {"with": sizes[0], "without": sizes[1]},
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; returns the exit code."""
    parser = argparse.ArgumentParser(description="what collecting statistics costs")
    parser.add_argument("--json", action="store_true", help="print one line of JSON")
    parser.add_argument("--scale", type=float, default=0.1, help="TPC-H's scale factor")
    parser.add_argument("--rows", type=int, default=250_000, help="rows of each event stream")
    parser.add_argument("--batches", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workloads", nargs="+", default=["tpch", "events"])
    options = parser.parse_args(arguments)
    load = os.getloadavg()
    # Discard the driver's log: it would go to standard output, which is for the figures.
    structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
    found = []
    try:
        with tempfile.TemporaryDirectory(prefix="anabranch-bench-") as name, redis_url() as url:
            folder = Path(name)
            for workload in options.workloads:
                made = (
                    tpch_joins(folder / "tables", options.scale)
                    if workload == "tpch"
                    else events(options.rows)
                )
                found.append(measure(made, folder / "run", url, options.batches, options.rounds))
    finally:
        structlog.reset_defaults()
    settings = {name: value for name, value in vars(options).items() if name != "json"}
    everything = document("statistics-cost", settings, load) | {"workloads": found}
    if options.json:
        sys.stdout.write(line(everything) + "\n")
        return 0
    for one in found:
        share = one["share"]
        sys.stdout.write(
            f"{one['workload']}: {100 * share['median']:.2f} % of CPU time "
            f"({100 * share['low']:.2f} to {100 * share['high']:.2f}), "
            f"inside {100 * one['inside']['median']:.2f} %, "
            f"in the later half {100 * one['inside_later_half']['median']:.2f} %, "
            f"{one['cpu_seconds_without']} s without, {one['tuples']:,} tuples\n"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
