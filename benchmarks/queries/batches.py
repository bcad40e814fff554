"""Cost of a batch in the runtime, by number of queries.

``python -m benchmarks.queries.batches [--json] [--queries 10 100 1000] [--alike 500]
[--rules 50 500 5000]``

The real planner, driver and tasks run in one process, without Spark and the service; results are
only counted, so that no cost of files is measured. Every batch after the first few has the same
number of rows. ``busy``: all queries get rows, of all streams. ``silent``: only one query gets
rows; the streams of all other queries are empty. ``filtered``: the other queries read the same
streams, but no row passes their filters. ``alike``: queries differ only in the constant of a
filter. ``rules``: ``benchmarks.queries.rules``. ``own stores``: the same queries, but each filter
has a separate store. For each case the table has CPU seconds of a batch in the driver and in tasks,
both with edges processed in rounds (``probe.rounds``) and with edges processed one by one; batches
of the two kinds alternate, so that both have the same state on the same machine.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pyarrow as pa

from anabranch_contract.connectors.sinks import SinkKind, SinkSpec
from anabranch_contract.durations import parse_duration
from anabranch_contract.plans.plan import Optimizer
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_planner.cost.sharing import SharedStores
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.passes import optimise, parse_sql
from anabranch_planner.plans.compile import compile_ruleset
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.probe.rounds import Rounds
from anabranch_runtime.sources.blocks import Block
from benchmarks.command import Benchmark, run_benchmark, spread
from benchmarks.engine import Engine
from benchmarks.queries import rules, workload
from benchmarks.queries.registration import common
from benchmarks.report.grids import Grid
from tests.support.surroundings.redis import redis_url

#: Number of warm-up batches, and of pairs of measured batches.
FIRST, ROUNDS = 6, 6
#: Microseconds of event time per batch.
SPAN = 20_000_000
#: Join column -> its number of values per row of a stream in a batch. So a tuple has about five
#: partners (k0) to half a partner (k3) within a window.
VALUES = {"k0": 6, "k1": 12, "k2": 25, "k3": 50}
#: Streams of the query that gets rows in the case ``silent``, and the shape of all its queries.
LOUD = ("b0", "b1", "b2")
_JOIN = "SELECT b0.v AS x, b2.w AS y FROM b0 JOIN b1 ON b0.k1 = b1.k1 JOIN b2 ON b1.k2 = b2.k2"


@dataclass(frozen=True, slots=True)
class Case:
    """A set of queries, and the streams that have rows.

    Attributes:
        kind: name of the case in tables. ``streams``: all registered streams.
        loud: streams that have rows in the measured batches.
        shares: whether filters may share stores.
    """

    kind: str
    queries: tuple[workload.Query, ...]
    streams: tuple[str, ...]
    loud: tuple[str, ...]
    shares: bool = True


def cases(levels: Sequence[int], alike: int, streams: int, ruled: Sequence[int] = ()) -> list[Case]:
    """Return every case, at each of its numbers of queries."""
    names = tuple(workload.streams(streams))
    found = []
    for level in levels:
        queries = tuple(workload.queries(level, streams))
        found.append(Case("busy", queries, names, names))
    one = _query("loud", _JOIN)
    for level in (1, max(levels)):
        others = tuple(workload.queries(level - 1, streams))
        found.append(Case("silent", (one, *others), (*names, *LOUD), LOUD))
    for level in (1, max(levels)):
        # Filters that no row passes: values are less than ``VALUES``.
        others = tuple(
            _query(f"n{n:04}", f"{_JOIN} WHERE b0.v > {workload.VALUES + n}")
            for n in range(level - 1)
        )
        found.append(Case("filtered", (one, *others), LOUD, LOUD))
    for level in (1, alike):
        queries = tuple(
            _query(f"c{n:04}", f"{_JOIN} WHERE b0.v > {n * workload.VALUES // alike}")
            for n in range(level)
        )
        found.append(Case("alike", queries, LOUD, LOUD))
    found.append(Case("alike, own stores", queries, LOUD, LOUD, shares=False))
    for level in ruled:
        found.append(Case("rules", tuple(rules.rules(level)), (rules.STREAM,), (rules.STREAM,)))
    return found


def _query(name: str, sql: str) -> workload.Query:
    return workload.Query(name, sql, "5 minutes", LOUD)


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Measure every case, one after the other."""
    found = []
    with redis_url() as url:
        every = cases(options.queries, options.alike, options.streams, options.rules)
        for number, case in enumerate(every):
            made = planned(case)
            sizes = {"queries": len(case.queries), "rules": len(made.probe_rules)}
            sizes["stores"] = len(made.stores)
            measured = run(case, made, home / str(number), url, options.rows, options.tasks)
            found.append({"case": case.kind} | sizes | measured)
    return {"cases": found}


def planned(case: Case) -> Ruleset:
    """Return the ruleset of a case's queries, as the planner makes it."""
    given = rules.COLUMNS if rules.STREAM in case.streams else workload.COLUMNS
    columns = tuple((name, parse_type(kind)) for name, kind in given.items())
    streams = [
        Stream(StreamName(name), columns, event_time="ts", lateness=60_000_000)
        for name in case.streams
    ]
    by_name: dict[str, Stream] = {s.name: s for s in streams}
    joins = tuple(parse_sql(q.name, q.sql, by_name, parse_duration(q.window)) for q in case.queries)
    if case.shares:
        chosen = SharedStores(Statistics()).choose(joins)
        joins = tuple(
            parse_sql(q.name, q.sql, by_name, parse_duration(q.window), chosen[q.name])
            if q.name in chosen
            else join
            for q, join in zip(case.queries, joins, strict=True)
        )
    # Plan without intermediate results and without a joint search: a search over a thousand queries
    # takes minutes, and with a deadline would give different plans in each run.
    options = Options(optimizer=Optimizer.SHARED, mir=False, parallelism=1)
    plan = optimise(joins, Statistics(), options)
    sinks = {q.name: SinkSpec(SinkKind.COUNT) for q in case.queries}
    return compile_ruleset(plan, joins, streams, epoch=0, parallelism=1, sinks=sinks)


def run(case: Case, made: Ruleset, home: Path, url: str, rows: int, tasks: int) -> dict[str, Any]:
    """Return the CPU seconds of a batch, and its number of results."""
    spent: list[float] = []

    def around(work: Callable[[], TaskReport]) -> TaskReport:
        began = time.thread_time()
        report = work()
        spent.append(time.thread_time() - began)
        return report

    streams = [s for s in made.streams if s.name in case.streams]
    engine = Engine(home, url, streams, (), tasks=tasks, rules=made, around=around)
    drawn = np.random.default_rng(0)
    whole, inside, results = list[float](), list[float](), 0
    apart = list[float]()
    for batch in range(FIRST + 2 * ROUNDS):
        names = case.streams if batch < FIRST // 2 else case.loud
        blocks = [_block(name, batch, rows // len(names), drawn) for name in names]
        spent.clear()
        # The two kinds of batches take turns in being the first of a pair, since the state grows
        # with every batch.
        together = batch % 4 in (0, 3)
        began = time.process_time()
        with nullcontext() if together else patch.object(Rounds, "add", lambda *_: False):
            engine.run(lambda task, tasks, blocks=blocks: _share(blocks, task, tasks))  # type: ignore[misc]
        if batch >= FIRST and not together:
            apart.append(time.process_time() - began)
        if batch >= FIRST and together:
            whole.append(time.process_time() - began)
            inside.append(sum(spent))
            results += engine.results
    engine.finish()
    return {
        "cpu_s": spread(whole, 4),
        "apart_s": spread(apart, 4),
        "ratio": round(statistics.median(a / w for a, w in zip(apart, whole, strict=True)), 2),
        "tasks_s": round(statistics.median(inside), 4),
        "driver_s": round(statistics.median(w - i for w, i in zip(whole, inside, strict=True)), 4),
        "results": results // ROUNDS,
    }


def _block(name: str, batch: int, rows: int, drawn: np.random.Generator) -> Block:
    if name == rules.STREAM:
        return Block(StreamName(name), rules.events(rows, batch * SPAN, SPAN, drawn))
    moments = np.sort(drawn.integers(batch * SPAN, (batch + 1) * SPAN, rows))
    columns = {
        **{k: pa.array(drawn.integers(0, n * rows, rows)) for k, n in VALUES.items()},
        **{
            c: pa.array(drawn.integers(0, workload.VALUES, rows).astype(np.int32))
            for c in ("v", "w")
        },
        "ts": pa.array(moments, pa.timestamp("us", tz="UTC")),
    }
    return Block(StreamName(name), pa.record_batch(columns))


def _share(blocks: Sequence[Block], task: int, tasks: int) -> list[Block]:
    found = []
    for block in blocks:
        rows = block.rows.num_rows
        first, last = rows * task // tasks, rows * (task + 1) // tasks
        found.append(Block(block.stream, block.rows.slice(first, last - first)))
    return found


def tables(found: dict[str, Any]) -> list[Grid]:
    """Return the table: a row per case and number of queries."""
    head = (
        "case",
        "queries",
        "probe rules",
        "stores",
        "results",
        "CPU ms",
        "driver",
        "tasks",
        "each alone",
        "ratio",
    )
    rows = tuple(
        (
            case["case"],
            f"{case['queries']:,}",
            f"{case['rules']:,}",
            f"{case['stores']:,}",
            f"{case['results']:,}",
            f"{1000 * case['cpu_s']['median']:.0f}",
            f"{1000 * case['driver_s']:.0f}",
            f"{1000 * case['tasks_s']:.0f}",
            f"{1000 * case['apart_s']['median']:.0f}",
            f"{case['ratio']:.2f}",
        )
        for case in found["cases"]
    )
    return [Grid("CPU of a batch, by the number of queries", head, rows)]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, nargs="+", default=[10, 100, 1000])
    parser.add_argument("--alike", type=int, default=500, help="queries that differ in a constant")
    parser.add_argument("--rules", type=int, nargs="*", default=[50, 500, 5000])
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rows", type=int, default=4000, help="of a batch")
    parser.add_argument("--tasks", type=int, default=1)


BENCHMARK = Benchmark(
    "batches",
    "Cost of a batch to the runtime, by the number of queries.",
    _options,
    measure,
    tables,
)

if __name__ == "__main__":
    sys.exit(run_benchmark("queries", BENCHMARK, None, common))
