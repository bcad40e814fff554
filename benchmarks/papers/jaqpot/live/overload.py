"""Latency and results of a pipeline whose input is faster than the machine all the time.

``python -m benchmarks.papers jaqpot overload [--json] [--workload selective] [--times 1.5 2 4]``

The pipeline runs live, with Spark and the service. Small files arrive by the clock, open loop:
input that the system can't keep up with waits, and its waiting is measured. Input begins at half of
the capacity, so that windows fill, and statistics lead to plans and rations. Then the plan is
fixed, since different orders would make policies incomparable, and the overload begins. To fix it,
revisions are switched off, and steps that the running plan does not have get a price above
everything that they could save. A run whose plan was made without statistics reports nothing. Each
run reports the epoch of its plan's statistics, its number of different orders during the measured
time, and a digest of the last ones.

The capacity is the rows per second that the policy ``wait`` processes of far too many. Then several
multiples of the capacity arrive under each policy, in turns, and first with rations near zero
(``storing``), which shows whether reading and storing alone meet the latency goal. Figures are from
the second half of the overload, since it has to be detected first. A row's latency is the time from
the naming of its file to the commit of its batch. Afterwards the backlog is processed for a while
(``--drain``); rows that still wait then count with their time so far, so those latencies are too
low (≥).

The budget is the mean CPU time left to probes, as a share of the CPU time that they would take.
Results kept are results of batches of the overload, as shares of DuckDB's results that are due in
it, over all rows, without rations. The policy ``slo`` is ``fair`` for queries that state a
completeness of ``--floor``, and a freshness of the latency goal plus the greatest distance of
members that their windows allow. Results with a member older than that when their batch was planned
are counted (``stale``), as are violations of the floor. ``equal`` needs no planning: it has one
ration for all goals (:mod:`benchmarks.papers.jaqpot.live.equal`).
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import sys
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import duckdb

from anabranch_client.processes.allowed import Permissions
from anabranch_client.processes.pipeline import Pipeline, PipelineSpec, running
from anabranch_client.rest.api import Client
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.keys import Keys
from anabranch_runtime.control import Control
from anabranch_runtime.recovery.journal import REMEMBERED, Journal
from benchmarks.command import Benchmark, made, quantile, run_benchmark
from benchmarks.papers.jaqpot.live.equal import EqualRations
from benchmarks.papers.jaqpot.live.overload_feed import Feeder, files_of, latencies, prepare
from benchmarks.papers.jaqpot.live.overload_workloads import (
    TICK,
    WORKLOADS,
    LiveWorkload,
    Load,
    live_workload,
)
from benchmarks.papers.jaqpot.sums import mean
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.runtime.command import master
from benchmarks.session import PATIENCE, BatchLog, WrongResultError, read_log

#: Settings by the names of policies; with ``storing`` hardly anything is probed with.
POLICIES: dict[str, dict[str, Any]] = {
    "wait": {"overload": "wait"},
    "fair": {"overload": "ration", "allocation": "fair"},
    "results": {"overload": "ration", "allocation": "results"},
    "catch-up": {"overload": "ration-with-catch-up", "allocation": "fair"},
    "slo": {"overload": "ration", "allocation": "fair"},
    "equal": {"overload": "ration", "allocation": "results"},
    "storing": {"overload": "ration", "allocation": "fair", "capacity": 1e-6},
}
#: Seconds before the overload at which the plan is kept from then on, so that one that was already
#: published begins before it.
SETTLING = 4.0
#: Part of the looks at which rations of ``equal`` may differ, since a new schedule was just read.
UNEQUAL = 0.1
#: Settings that keep the running plan: no revisions, and any other step costs a thousand times its
#: cost.
FIXED: dict[str, Any] = {"revision_gain": "none", "switching": 1000.0}
#: Rate of a flood over the calm rate before it; a pipeline that reads less than the second, as a
#: share of the flood, is at its capacity.
CALM, ENOUGH = 8, 0.7
#: Seconds between looks at a running pipeline.
_LOOKING = 0.25


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--workload", choices=WORKLOADS, default="selective")
    parser.add_argument("--times", type=float, nargs="+", default=[1.5, 2.0, 4.0])
    parser.add_argument(
        "--policies",
        nargs="+",
        choices=[name for name in POLICIES if name != "storing"],
        default=["wait", "equal", "fair", "results", "slo"],
    )
    parser.add_argument("--optimizer", default="clash")
    parser.add_argument("--seconds", type=float, default=16.0, help="of overload")
    parser.add_argument("--calm", type=float, default=24.0, help="seconds before")
    parser.add_argument("--drain", type=float, default=10.0, help="seconds afterwards, at most")
    parser.add_argument("--window", type=float, default=4.0, help="seconds")
    parser.add_argument("--latency", type=float, default=2.0, help="seconds that are promised")
    parser.add_argument("--floor", type=float, default=0.05, help="completeness, of 'slo'")
    parser.add_argument("--flood", type=float, help="rows/s, for capacities; by workload")


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=2, help="Spark's")
    parser.add_argument("--parallelism", type=int, default=1, help="partitions per store")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """The capacity, and then all policies at all multiples of it."""
    capacity, found = _capacity(options, home), []
    for times in options.times:
        load = [(capacity / 2, options.calm), (capacity * times, options.seconds)]
        for policy in ("storing", *options.policies):
            one = _run(options, home, policy, load, drain=options.drain)
            found.append({"times": times, "policy": policy, **one})
            tell(
                f"{options.workload}, {times} x {policy}: p50 {one['p50']:.2f} s, "
                f"p99 {one['p99']:.2f} s, {one['kept']:.3f} of the results, {one['orders']}"
            )
    return {"capacity": capacity, "runs": found}


def _capacity(options: argparse.Namespace, home: Path) -> float:
    """Rows per second, of a flood that is far more."""
    most = options.flood or WORKLOADS[options.workload]
    while True:
        flood = [(most / CALM, options.calm), (most, options.seconds)]
        one = _run(options, home, "wait", flood, drain=0.0)
        found: float = one["rows_per_s"]
        tell(f"{options.workload}: {found:,.0f} of {most:,.0f} rows/s, orders {one['orders']}")
        if found < ENOUGH * most:
            return found
        most *= 2


def _run(
    options: argparse.Namespace, home: Path, policy: str, load: Load, *, drain: float
) -> dict[str, Any]:
    folder = made(home / "run")
    try:
        return _measured(options, folder, policy, load, drain)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(
    options: argparse.Namespace, folder: Path, policy: str, load: Load, drain: float
) -> dict[str, Any]:
    workload = live_workload(options.workload, options.window, folder / "made")
    ticks = prepare(workload, load, folder / "waiting")
    calm = round(load[0][1] / TICK)
    spec = PipelineSpec(
        home=folder / "pipeline",
        results=folder / "pipeline" / "results",
        mode="live",
        optimizer=options.optimizer,
        epoch_batches=8,
        namespace=f"bench-{uuid.uuid4().hex[:12]}",
        master=master(options),
        parallelism=options.parallelism,
        access=Permissions((folder.resolve(),)),
    )
    made(spec.results)
    limits = _freshness(options, workload) if policy == "slo" else {}
    with running(spec) as pipeline, pipeline.start_service() as client:
        client.update_settings(**POLICIES[policy], latency_goal=options.latency)
        _register(client, workload, folder, options, limits, slo=policy == "slo")
        pipeline.start_runtime()
        _wait(pipeline, 0, PATIENCE)
        watch = _Watch(pipeline, client, [query.name for query in workload.queries])
        rival = None
        if policy == "equal":
            rival = EqualRations(pipeline.redis_url, Keys(spec.namespace).rations)
            rival.start()
        feeder = Feeder(folder, ticks, timed=workload.timed)
        feeder.start()
        overload = time.time() + load[0][1]
        begin = overload + load[-1][1] / 2
        watch.until(overload - SETTLING)
        client.update_settings(**FIXED)
        watch.until(overload)
        measured = _statistics_of(pipeline, client)
        watch.until(begin)
        watch.measured = True
        watch.while_(feeder.is_alive)
        watch.measured = False
        feeder.join()
        ended, sent = time.time(), sum(tick.rows for tick in ticks)
        drained = _wait(pipeline, sent, drain, look=watch.look)
        worked = time.time()
        if policy == "catch-up" and drained:
            drained = _wait(pipeline, sent, drain, owed=False)
        paid = time.time()
        if rival is not None:
            rival.stop()
        progress = pipeline.channel.progress()
        activations = pipeline.channel.activations()
        pipeline.finish_runtime()
        batches = read_log(spec.logs / "runtime.log")
        log = [b for b in batches if b.tuples]
        orders = _orders(pipeline, spec.namespace, log, begin, ended)
    kept = sum(progress.results.values()) if progress else 0
    if rival is not None and watch.unequal > UNEQUAL:
        raise WrongResultError(f"rations differed at {watch.unequal:.0%} of the looks")
    full, before = (_oracle(folder, workload, n) for n in (None, calm))
    if kept > full or (policy in ("wait", "catch-up") and drained and kept != full):
        raise WrongResultError(f"{kept} results with {policy}, {full} without rations")
    waited = latencies(log, feeder.arrivals, begin, None if drained else paid)
    within = [b for b in log if begin <= b.committed_at <= ended]
    seconds = within[-1].committed_at - begin if within else 1.0
    late = sum(activation.caught_up for activation in activations.values())
    due = full - before
    found = results_after(batches, sum(tick.rows for tick in ticks[:calm])) - late
    estimate = found + sum(a.withheld + a.owed for a in activations.values())
    return {
        "p50": round(quantile(waited, 0.5), 3),
        "p99": round(quantile(waited, 0.99), 3),
        "rows_per_s": round(sum(b.tuples for b in within) / seconds, 1),
        "drained": drained,
        "kept": round(found / due, 4) if due else 1.0,
        "estimated": round(found / estimate, 4) if estimate else 1.0,
        "made_good": round(late / due, 4) if due else 0.0,
        "paid_after": round(paid - worked, 1),
        "results": kept,
        "full": full,
        "budget": watch.budget,
        "orders": orders,
        "statistics_epoch": measured,
        "stale": _stale(spec.results, limits, watch.planned) if limits else None,
        "floor_broken": watch.broken if policy == "slo" else None,
    }


def _statistics_of(pipeline: Pipeline, client: Client) -> int:
    """The epoch whose statistics the running plan is made from.

    Raises:
        WrongResultError: there is none.
    """
    progress = pipeline.channel.progress()
    running = -1 if progress is None else progress.ruleset_epoch
    found = client.epoch(running).statistics_epoch if running >= 0 else None
    if found is None:
        raise WrongResultError(
            f"when the overload began the plan (epoch {running}) was made without statistics; "
            "give --calm more seconds"
        )
    return found


def _register(
    client: Client,
    workload: LiveWorkload,
    folder: Path,
    options: argparse.Namespace,
    limits: dict[str, dict[str, float]],
    *,
    slo: bool,
) -> None:
    for name, columns in workload.columns.items():
        source = {"format": "files", "path": str(made(folder / name))}
        timed: dict[str, Any] = (
            {"event_time": "ts", "lateness": "60 seconds"} if workload.timed else {}
        )
        first = [("ts", "timestamp")] if workload.timed else []
        client.create_stream(
            name, [*first, *columns], source={**source, "options": {"type": "parquet"}}, **timed
        )
    for query in workload.queries:
        fresh = {
            a: f"{round(s * 1000)} milliseconds" for a, s in limits.get(query.name, {}).items()
        }
        needs: dict[str, Any] = {"completeness": options.floor, "freshness": fresh}
        client.create_query(query.sql, name=query.name, slo=needs if slo else None)


def _freshness(options: argparse.Namespace, workload: LiveWorkload) -> dict[str, dict[str, float]]:
    """Query -> alias -> how old its members may be, in seconds; nothing without event times."""
    if not workload.timed:
        return {}
    return {
        # As far apart as the members of a chain may be, which must not be left out.
        q.name: dict.fromkeys(q.tables, (len(q.tables) - 1) * options.window + options.latency)
        for q in workload.queries
    }


@dataclass(slots=True)
class _Watch:
    """Looks at a running pipeline now and then.

    Attributes:
        measured: whether the measured time is now.
        planned: batch -> microseconds since 1970 at which it was planned.
    """

    pipeline: Pipeline
    client: Client
    queries: list[str]
    measured: bool = False
    planned: dict[int, int] = field(default_factory=dict)
    _broken: list[bool] = field(default_factory=list)
    _budgets: list[float] = field(default_factory=list)
    _unequal: list[bool] = field(default_factory=list)

    @property
    def broken(self) -> float:
        """The share of looks during the measured time at which a floor was broken."""
        return round(mean(self._broken), 3) if self._broken else 0.0

    @property
    def budget(self) -> float:
        """The mean budget at these looks."""
        return round(mean(self._budgets), 3) if self._budgets else 1.0

    @property
    def unequal(self) -> float:
        """The share of these looks at which some goals had another ration than others."""
        return round(mean(self._unequal), 3) if self._unequal else 0.0

    def until(self, moment: float) -> None:
        """Look until then (seconds since 1970)."""
        self.while_(lambda: time.time() < moment)

    def while_(self, lasts: Callable[[], bool]) -> None:
        """Look as long as that is true."""
        while lasts():
            self.pipeline.check()
            self.look()
            time.sleep(_LOOKING)

    def look(self) -> None:
        """Record planning times, which the journal forgets, and the service's figures."""
        journal = Journal(self.pipeline.spec.state)
        for batch in range(max((journal.newest or 0) - REMEMBERED, 0), (journal.newest or 0) + 1):
            entry = journal.get(batch)
            if entry is not None and entry.offsets is not None:
                self.planned[batch] = entry.offsets.planned
        if self.measured:
            rationed = [self.client.query(name).rationed for name in self.queries]
            rationing = _rationing(self.pipeline)
            self._budgets.append(rationing.budget)
            self._unequal.append(len({round(one.share, 6) for one in rationing.rations}) > 1)
            self._broken.append(any(one is not None and one.floor_broken for one in rationed))


def results_after(batches: list[BatchLog], rows: int) -> int:
    """The results of the batches that have read what came after the first ``rows`` rows."""
    read = found = 0
    for batch in batches:
        read += batch.tuples
        found += batch.results if read > rows else 0
    return found


def _orders(
    pipeline: Pipeline, namespace: str, log: list[BatchLog], begin: float, ended: float
) -> str:
    """How many probe orders batches have gone by in the measured time, and a digest of the last."""
    control = Control(pipeline.redis_url, namespace)
    digests: dict[str, str] = {}
    for name in dict.fromkeys(b.ruleset for b in log if begin <= b.committed_at <= ended):
        rules = control.ruleset(RulesetId.parse(name))
        paths = sorted(f"{p.edge} {','.join(p.members)}" for p in rules.paths)
        digests[name] = hashlib.sha256("\n".join(paths).encode()).hexdigest()[:8]
    last = next(reversed(digests.values()), "none")
    return f"{len(set(digests.values()))} ({last})"


def _rationing(pipeline: Pipeline) -> Any:
    progress = pipeline.channel.progress()
    assert progress is not None
    return progress.rationing


def _wait(
    pipeline: Pipeline,
    rows: int,
    most: float,
    *,
    owed: bool = True,
    look: Callable[[], None] = lambda: None,
) -> bool:
    """Wait until so many rows have been committed, and the runtime runs; without ``owed`` also
    until nothing is. Whether that came within ``most`` seconds.
    """
    deadline = time.monotonic() + most
    while True:
        pipeline.check()
        progress = pipeline.channel.progress()
        runs = progress is not None and progress.state in ("running", "idle")
        read = runs and progress is not None and progress.input_tuples >= rows
        if read and progress is not None and (owed or not progress.rationing.owed):
            return True
        if time.monotonic() > deadline:
            return False
        look()
        time.sleep(0.05)


def _oracle(folder: Path, workload: LiveWorkload, ticks: int | None) -> int:
    """How many results there are without rations, of the rows of the first ``ticks`` ticks."""
    with duckdb.connect() as connection:
        for name in workload.columns:
            files = [str(file) for file in files_of(folder / name, ticks)]
            if not files:
                return 0
            connection.read_parquet(files).create_view(name)
        counts = [
            connection.execute(f"SELECT count(*) FROM {query.source}").fetchone()
            for query in workload.queries
        ]
        return sum(int(row[0]) for row in counts if row is not None)


def _stale(
    results: Path, limits: dict[str, dict[str, float]], planned: dict[int, int]
) -> dict[str, int]:
    """Number of results with a member that was too old when their batch was planned, and of all
    examined results: results of batches whose planning time is known.
    """
    stale = looked = 0
    with duckdb.connect() as connection:
        for query, most in limits.items():
            for file in (results / query).glob("*.parquet"):
                now = planned.get(int(file.name.partition("-")[0]))
                if now is None:
                    continue
                old = " OR ".join(
                    f"epoch_us({alias}_ts) < {now - round(seconds * 1e6)}"
                    for alias, seconds in most.items()
                )
                row = connection.execute(
                    f"SELECT count(*), count(*) FILTER ({old}) FROM read_parquet('{file}')"
                ).fetchone()
                assert row is not None
                looked, stale = looked + row[0], stale + row[1]
    return {"stale": stale, "looked": looked}


def tables(entry: dict[str, Any]) -> list[Grid]:
    """One row per load and policy."""
    rows = [
        (
            f"{one['times']:g} × {one['policy']}",
            *(f"{'' if one['drained'] else '≥ '}{one[p]:.2f}" for p in ("p50", "p99")),
            *(f"{100 * one[what]:.1f} %" for what in ("kept", "estimated", "made_good")),
            f"{one['paid_after']:.1f}",
            f"{one['budget']:.2f}",
            "-"
            if one["stale"] is None
            else f"{one['stale']['stale']} of {one['stale']['looked']:,}",
            "-" if one["floor_broken"] is None else f"{100 * one['floor_broken']:.0f} %",
            one["orders"],
            str(one.get("statistics_epoch", "none")),
        )
        for one in entry["runs"]
    ]
    kept = ("results kept", "as estimated", "made good", "paid after s")
    head = ("load and policy", "p50 s", "p99 s", *kept, "budget")
    last = ("stale results", "floor broken", "orders", "statistics of epoch")
    name = entry["settings"]["workload"]
    title = f"overload, {name}: capacity {entry['capacity']:,.0f} rows/s"
    return [Grid(title, (*head, *last), tuple(rows))]


BENCHMARK = Benchmark(
    "overload", "latency and results where input outruns the machine", _options, measure, tables
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit code."""
    return run_benchmark("papers.jaqpot.live", BENCHMARK, arguments, _common)


if __name__ == "__main__":
    sys.exit(main())
