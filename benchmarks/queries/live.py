"""Load of the whole system with many queries, while rows arrive for few of them.

``python -m benchmarks.queries.live [--json] [--queries 1000] [--streams 50] [--rate 20000]``

Valkey, service and runtime run as processes with the settings of ``anabranch up``, so epochs end
and are planned on schedule meanwhile. The share ``--busy`` of the queries reads only the same share
of streams (at least five), which have ``--rate`` rows per second together; each other stream has a
row every ten seconds. Files arrive by the clock, open loop, half a second apart. The number of
values of a join column is such that after 120 seconds a row has between one partner in a stream and
an eighth of one, so most of the load is storing and probing; results are only counted. Queries are
registered before the runtime starts, 250 with a request, and the first rows arrive when all of them
are active.

Backlog and lag (how long the oldest uncommitted row has waited) are means over the tenth of the
time before half time and before the end. The system keeps up if the lag at the end is at most 1.25
times the lag at half time, plus a second. Planning's share of CPU time is the share of the planner
processes and of the whole service, which has hardly any other work here. An epoch's delay is the
time from the end of the epoch whose measurements it is planned with to its publication; it is late
if the runtime had to begin it with an older plan.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import sys
import time
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq

from anabranch_client.processes.pipeline import Pipeline, running
from anabranch_contract.plans.ruleset import RulesetId
from benchmarks.command import Benchmark, quantile, run_benchmark, spread
from benchmarks.kinds import Kind
from benchmarks.papers.jaqpot.live.overload_feed import Feeder, Tick, latencies
from benchmarks.papers.jaqpot.live.overload_workloads import TICK
from benchmarks.queries import whole, workload
from benchmarks.queries.registration import common
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.session import TASK_PHASES, BatchLog, read_log

Arrivals = Sequence[tuple[float, int]]


#: Maximum number of streams in a query, so the minimum number of busy streams.
WIDEST = 5
#: Ticks between two files of a busy stream, and between two rows of another stream.
EVERY, SELDOM = 2, 40
#: Seconds of rows for which :data:`~.batches.VALUES` is chosen.
SPAN = 20.0
#: Permitted growth of the lag: a factor, and seconds.
GROWTH, MORE = 1.25, 1.0
#: Target: maximum share of planning in the CPU time.
PLANNING = 0.1


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Register queries, wait until all are active, let rows arrive, and return the figures."""
    loud, quiet = parts(options.streams, options.busy)
    queries = chosen(options.queries, options.streams, options.busy)
    ticks = prepare(home, loud, quiet, options.rate, options.seconds)
    with running(whole.spec(home, options.tasks)) as pipeline:
        marks = [(time.time(), whole.spent(pipeline))]

        def mark(what: str) -> None:
            marks.append((time.time(), whole.spent(pipeline)))
            tell(f"{what}: {marks[-1][0] - marks[-2][0]:.1f} s")

        with pipeline.start_service() as client:
            whole.create_streams(client, [*loud, *quiet], home, "1 minute")
        mark("service and streams")
        with httpx.Client(base_url=pipeline.url, timeout=300) as http:
            whole.register(http, queries)
        mark(f"{len(queries):,} queries")
        _activate(pipeline, len(queries))
        mark("all of them active")
        feeder = Feeder(home, ticks, timed=False)
        feeder.start()
        while feeder.is_alive():
            pipeline.check()
            feeder.join(0.5)
        mark("rows")
        progress, memory = pipeline.progress(), whole.resident(pipeline)
        log = read_log(pipeline.spec.logs / "runtime.log")
        published = publications(pipeline.spec.logs / "service.log")
    begin, end = marks[-2][0], marks[-1][0]
    cpu = [whole.difference(a[1], b[1]) for a, b in itertools.pairwise(marks)]
    return {
        "registration": {"seconds": round(marks[2][0] - marks[1][0], 2), "cpu_s": cpu[1]},
        "activation": {"seconds": round(marks[3][0] - marks[2][0], 2), "cpu_s": cpu[2]},
        **kept_up(log, feeder.arrivals, begin, end),
        **_of_batches(log, begin, end),
        "cpu_s": cpu[3],
        "planning": planning(cpu[3]),
        "memory_mb": {part: round(held / 1e6) for part, held in memory.items()},
        "state_mb": round(progress.resources.state_bytes / 1e6, 1) if progress else None,
        "epochs": epochs(log, published, begin, end),
    }


def parts(streams: int, busy: float) -> tuple[list[str], list[str]]:
    """Return the streams of busy queries, and the other streams."""
    names = workload.streams(streams)
    many = max(round(streams * busy), WIDEST)
    return names[:many], names[many:]


def chosen(queries: int, streams: int, busy: float) -> list[workload.Query]:
    """Return the busy queries and the others."""
    loud, quiet = parts(streams, busy)
    many = round(queries * busy)
    others = workload.queries(queries - many, len(quiet), first=len(loud))
    return [*workload.queries(many, len(loud), prefix="b"), *others]


def prepare(
    home: Path, loud: Sequence[str], quiet: Sequence[str], rate: float, seconds: float
) -> list[Tick]:
    """Write all files to a folder, where they wait for their time of arrival."""
    folder, drawn = home / "waiting", np.random.default_rng(0)
    folder.mkdir()
    began, found = time.time(), []
    each = rate / len(loud)
    for number in range(round(seconds / TICK)):
        counts = {n: round(each * TICK * EVERY) for n in loud[number % EVERY :: EVERY]}
        counts |= dict.fromkeys(quiet[number % SELDOM :: SELDOM], 1)
        files = {}
        for name, count in counts.items():
            files[name] = folder / f"{number:06}-{name}.parquet"
            since, span = began + number * TICK, TICK * EVERY
            pq.write_table(whole.rows(count, each * SPAN, since, span, drawn), files[name])
        found.append(Tick(files, sum(counts.values())))
    return found


def _activate(pipeline: Pipeline, queries: int) -> None:
    """Start the runtime, and wait until all queries are active."""
    pipeline.start_runtime()
    whole.wait_for_activation(pipeline, queries)


def publications(path: Path) -> dict[int, float]:
    """Return epoch -> time of its publication (seconds since 1970), from the service's log."""
    found = {}
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if '"epoch published"' in text:
            entry = json.loads(text)
            found[entry["epoch"]] = datetime.fromisoformat(entry["timestamp"]).timestamp()
    return found


def kept_up(
    log: Sequence[BatchLog], arrivals: Arrivals, begin: float, end: float
) -> dict[str, Any]:
    """Return the rates, and the backlogs at half time and at the end."""
    fed = arrivals[-1][1]
    read = sum(b.tuples for b in log if b.committed_at <= end)
    late = (end - begin) / 10
    half, last = (
        _waiting(log, arrivals, moment - late, moment) for moment in ((begin + end) / 2, end)
    )
    waited = latencies(log, arrivals, begin, end)
    return {
        "fed": fed,
        "fed_per_s": round(fed / (end - begin), 1),
        "read_per_s": round(read / (end - begin), 1),
        "half": half,
        "end": last,
        "latency_s": {"p50": quantile(waited, 0.5), "p99": quantile(waited, 0.99)},
        "keeps_up": last["lag_s"] <= GROWTH * half["lag_s"] + MORE,
    }


def _waiting(
    log: Sequence[BatchLog], arrivals: Arrivals, since: float, until: float
) -> dict[str, float]:
    """Return the mean backlog and lag between two times."""
    times, counts = (np.array(column) for column in zip(*arrivals, strict=True))
    commits = np.array([0.0] + [b.committed_at for b in log])
    read = np.cumsum([0] + [b.tuples for b in log])
    backlogs, lags = [], []
    for moment in np.linspace(since, until, 50):
        arrived = np.searchsorted(times, moment, side="right")
        fed = int(counts[arrived - 1]) if arrived else 0
        done = int(read[np.searchsorted(commits, moment, side="right") - 1])
        backlogs.append(max(fed - done, 0))
        oldest = times[np.searchsorted(counts, done, side="right")] if fed > done else moment
        lags.append(float(moment - oldest))
    return {"rows": round(statistics.mean(backlogs)), "lag_s": round(statistics.mean(lags), 2)}


def _of_batches(log: Sequence[BatchLog], begin: float, end: float) -> dict[str, Any]:
    """Return the numbers of results and batches between two times, and the mean times of phases."""
    within = [b for b in log if begin <= b.committed_at <= end]
    phases = {name: [b.tasks.get(name, 0.0) for b in within] for name in TASK_PHASES}
    phases |= {name: [getattr(b, name) for b in within] for name in ("enter", "job", "commit")}
    return {
        "results": sum(b.results for b in within),
        "batches": len(within),
        "batch_s": spread((b.seconds for b in within), 2) if within else None,
        "phases_s": {name: round(sum(each), 1) for name, each in phases.items()},
    }


def planning(cpu: dict[str, float]) -> float:
    """Return planning's share of the CPU time."""
    return round((cpu[Kind.SERVICE] + cpu[whole.PLANNER]) / sum(cpu.values()), 3)


def epochs(
    log: Sequence[BatchLog], published: dict[int, float], begin: float, end: float
) -> dict[str, Any]:
    """Return the number of epochs published between ``begin`` and ``end``, and their delays."""
    ends: dict[int, float] = {}
    behind: dict[int, bool] = {}
    for batch in log:
        ends[batch.epoch] = batch.committed_at
        if begin <= batch.committed_at <= end:
            behind.setdefault(batch.epoch, RulesetId.parse(batch.ruleset).epoch < batch.epoch)
    meanwhile = {epoch: at for epoch, at in published.items() if begin <= at <= end}
    delays = [at - ends[epoch - 2] for epoch, at in meanwhile.items() if epoch - 2 in ends]
    return {
        "begun": len(behind),
        "late": sum(behind.values()),
        "published": len(meanwhile),
        "delay_s": spread(delays, 2) if delays else None,
    }


def tables(found: dict[str, Any]) -> list[Grid]:
    """Return the tables of the load and of CPU times."""
    settings, batch = found["settings"], found["batch_s"]
    delay = found["epochs"]["delay_s"]
    load = (
        ("registration", f"{found['registration']['seconds']:.1f} s"),
        ("until all queries are active", f"{found['activation']['seconds']:.1f} s"),
        ("rows fed, per s", f"{found['fed_per_s']:,.0f}"),
        ("rows read, per s", f"{found['read_per_s']:,.0f}"),
        *(
            (f"backlog {name}", f"{found[at]['rows']:,} rows, {found[at]['lag_s']:.1f} s")
            for name, at in (("at half time", "half"), ("at the end", "end"))
        ),
        ("keeps up", "yes" if found["keeps_up"] else "no"),
        ("latency, p50 and p99", " and ".join(f"{s:.1f} s" for s in found["latency_s"].values())),
        ("results", f"{found['results']:,}"),
        ("batches", f"{found['batches']:,}"),
        ("batch, median", "–" if batch is None else f"{batch['median']:.2f} s"),
        ("epochs begun", f"{found['epochs']['begun']}"),
        ("by an older plan", f"{found['epochs']['late']}"),
        ("epochs published", f"{found['epochs']['published']}"),
        ("delay of their publication", "–" if delay is None else shown(delay, 1, sign=" s")),
        ("stored, MB", f"{found['state_mb']}"),
        ("planning's part of CPU", f"{found['planning']:.1%}"),
    )
    title = f"{settings['queries']:,} queries, {settings['rate']:,.0f} rows/s"
    head = ("process", "registration, CPU s", "activation, CPU s", "load, CPU s", "MB at the end")
    cpu = tuple(
        (
            str(part),
            *(
                f"{spent[part]:.1f}"
                for spent in (
                    found["registration"]["cpu_s"],
                    found["activation"]["cpu_s"],
                    found["cpu_s"],
                )
            ),
            f"{found['memory_mb'][part]:,}",
        )
        for part in whole.PARTS
    )
    times = tuple((name, f"{seconds:.1f}") for name, seconds in found["phases_s"].items())
    return [
        Grid(f"Load: {title}", ("", "found"), load),
        Grid(f"Processes: {title}", head, cpu),
        Grid(f"Phases of batches, s: {title}", ("phase", "all batches, s"), times),
    ]


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, default=1000)
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20_000.0, help="rows per second, of all")
    parser.add_argument("--seconds", type=float, default=120.0)
    parser.add_argument("--busy", type=float, default=0.1, help="part of queries that get rows")
    parser.add_argument("--tasks", type=int, default=2, help="Spark's")


BENCHMARK = Benchmark(
    "live",
    "Many queries on the whole system while rows arrive for few of them.",
    _options,
    measure,
    tables,
)

if __name__ == "__main__":
    sys.exit(run_benchmark("queries", BENCHMARK, None, common))
