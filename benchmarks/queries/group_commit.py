"""Cost of sinks if batches are tiny, with and without a commit interval.

``python -m benchmarks.queries.group_commit [--json] [--queries 1 20] [--batches 60 --every 20]``

The real planner, driver and tasks run in this process, without Spark and the service. For each
number of queries, several pipelines run the same queries over the same rows with different sinks:
results are counted (``count``), written to result files, or appended to a Redis Stream; batch by
batch, or gathered into groups of ``every`` batches. The pipelines take turns after every batch. CPU
time of the driver includes the delivery of groups.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_contract.connectors.sinks import LONGEST_INTERVAL, SinkSpec
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from benchmarks.command import Benchmark, run_benchmark
from benchmarks.engine import Engine
from benchmarks.queries.registration import common
from benchmarks.report.grids import Grid
from tests.support.surroundings.redis import redis_url

#: Number of warm-up batches.
FIRST = 10
#: Microseconds of event time per batch, and length of a query's window.
SPAN, WINDOW = 1_000_000, 2_000_000
SINKS = {
    "count": SinkSpec("count"),
    "files": SinkSpec(),
    "files, gathered": SinkSpec(commit_interval=LONGEST_INTERVAL),
    "redis": SinkSpec("redis-stream"),
    "redis, gathered": SinkSpec("redis-stream", commit_interval=LONGEST_INTERVAL),
}
_COLUMNS = {"k": "bigint", "v": "bigint", "ts": "timestamp"}


@dataclass(slots=True)
class Case:
    """A pipeline with one kind of sink, and the seconds of its measured batches."""

    sink: str
    engine: Engine
    inside: list[float]
    whole: list[float] = field(default_factory=list)
    tasks: list[float] = field(default_factory=list)
    results: int = 0

    @property
    def files(self) -> int:
        """Number of result files so far."""
        return len(list((self.engine.home / "results").glob("*/*.parquet")))


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Measure every number of queries; return the figures."""
    found = []
    for queries in options.queries:
        with ExitStack() as servers:
            cases = [
                case_of(sink, queries, home / f"{queries}-{n}", servers.enter_context(redis_url()))
                for n, sink in enumerate(SINKS)
            ]
            for batch in range(FIRST + options.batches):
                turn = cases[batch % len(cases) :] + cases[: batch % len(cases)]
                for case in turn:
                    step(case, batch, options.rows, options.every)
            found += [figures(queries, case, options.batches) for case in cases]
            for case in cases:
                case.engine.finish()
    return {"cases": found}


def case_of(sink: str, queries: int, home: Path, url: str) -> Case:
    """Return a pipeline whose queries have the sink ``sink``."""
    inside: list[float] = []

    def around(work: Callable[[], TaskReport]) -> TaskReport:
        began = time.thread_time()
        report = work()
        inside.append(time.thread_time() - began)
        return report

    rules = planned(queries, SINKS[sink])
    return Case(sink, Engine(home, url, rules.streams, (), rules=rules, around=around), inside)


def planned(count: int, sink: SinkSpec) -> Ruleset:
    """Return the ruleset of ``count`` joins of two streams."""
    columns = tuple((name, parse_type(kind)) for name, kind in _COLUMNS.items())
    streams = [Stream(StreamName(n), columns, event_time="ts", lateness=0) for n in ("a", "b")]
    by_name: dict[str, Stream] = {s.name: s for s in streams}
    sql = "SELECT a.k, a.v, b.v AS w, b.ts FROM a JOIN b ON a.k = b.k WHERE a.v >= {}"
    joins = [parse_sql(f"q{n:03}", sql.format(n), by_name, WINDOW) for n in range(count)]
    plan = optimise(joins, Statistics(), Options())
    sinks = {str(join.id): sink for join in joins}
    return compile_ruleset(plan, joins, streams, epoch=0, parallelism=1, sinks=sinks)


def step(case: Case, batch: int, rows: int, every: int) -> None:
    """Run one batch of a pipeline; after every ``every``-th batch, deliver its groups."""
    case.inside.clear()
    began = time.process_time()
    case.engine.run(lambda task, tasks: [_block(name, batch, rows) for name in ("a", "b")])
    if (batch + 1) % every == FIRST % every:
        case.engine.driver.publisher.retry(now=True)
    if batch >= FIRST:
        case.whole.append(time.process_time() - began)
        case.tasks += case.inside
        case.results += case.engine.results


def figures(queries: int, case: Case, batches: int) -> dict[str, Any]:
    """Return the figures of a pipeline; means for the driver, as few batches deliver groups."""
    inside, whole = sum(case.tasks) / batches, sum(case.whole) / batches
    return {
        "queries": queries,
        "sink": case.sink,
        "results": case.results // batches,
        "cpu_s": round(whole, 5),
        "tasks_s": round(inside, 5),
        "driver_s": round(whole - inside, 5),
        "median_s": round(statistics.median(case.whole), 5),
        "files": case.files,
    }


def _block(name: str, batch: int, rows: int) -> Block:
    drawn = np.random.default_rng([batch, ord(name)])
    moments = np.sort(drawn.integers(batch * SPAN, (batch + 1) * SPAN, rows))
    columns = {
        "k": pa.array(drawn.integers(0, rows, rows)),
        "v": pa.array(drawn.integers(20, 1000, rows)),
        "ts": pa.array(moments, pa.timestamp("us", tz="UTC")),
    }
    return Block(StreamName(name), pa.record_batch(columns))


def tables(found: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per number of queries and sink."""
    head = ("queries", "sink", "results", "CPU ms", "driver", "tasks", "median", "files")
    seconds = ("cpu_s", "driver_s", "tasks_s", "median_s")
    rows = tuple(
        (
            f"{case['queries']:,}",
            case["sink"],
            f"{case['results']:,}",
            *(f"{1000 * case[name]:.2f}" for name in seconds),
            f"{case['files']:,}",
        )
        for case in found["cases"]
    )
    return [Grid("CPU of a tiny batch, by sink", head, rows)]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 20])
    parser.add_argument("--rows", type=int, default=20, help="of each stream in a batch")
    parser.add_argument("--batches", type=int, default=60)
    parser.add_argument("--every", type=int, default=20, help="batches of a group")


BENCHMARK = Benchmark(
    "group_commit",
    "Cost of sinks of tiny batches, without and with a commit interval.",
    _options,
    measure,
    tables,
)

if __name__ == "__main__":
    sys.exit(run_benchmark("queries", BENCHMARK, None, common))
