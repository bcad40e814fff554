"""Latency and results of a pipeline under permanent overload: input faster than the machine.

``python -m benchmarks.papers jaqpot overload [--json] [--workload selective] [--times 1.5 2 4]``

The pipeline runs live, with Spark and the service. Small files arrive by the clock, open loop:
input that the system can't process yet waits, and the waiting time is measured. Input begins at
half of the capacity, so that windows fill, and statistics lead to plans and rations. Then the plan
is fixed, since policies with different probe orders could not be compared, and the overload begins.
To fix the plan, revisions are switched off, and new steps get a switching charge above everything
that they could save. A run whose plan was made without statistics fails. Each run reports the epoch
of its plan's statistics, the number of different probe orders during the measured time, and a
digest of the last ones.

The capacity is the number of rows per second that the policy ``wait`` processes of a flood of
input. Then several multiples of the capacity arrive under each policy, in turns, and first with
rations near zero (``storing``), which shows whether reading and storing alone meet the latency
goal. Figures are from the second half of the overload, since it has to be detected first. A row's
latency is the time from the naming of its file to the commit of its batch. Afterwards the backlog
is processed for a while (``--drain``). Rows that still wait at the end count with their time so
far, so the reported latencies are lower bounds (≥).

The budget is the mean share of rationed probes' CPU time that batches may take. Results kept are
the results of batches during the overload, as a share of the results that DuckDB has for the same
rows without rations. The policy ``slo`` is ``fair`` for queries with two service level objectives:
a completeness of ``--floor``, and a freshness of the latency goal plus the greatest distance
between members that their windows allow. Violations of both are counted: results with a member that
was too old when their batch was planned (``stale``), and times below the floor. ``equal`` has one
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

#: Name of a policy -> planning settings. With ``storing``, hardly any tuple probes.
POLICIES: dict[str, dict[str, Any]] = {
    "wait": {"overload": "wait"},
    "fair": {"overload": "ration", "allocation": "fair"},
    "results": {"overload": "ration", "allocation": "results"},
    "catch-up": {"overload": "ration-with-catch-up", "allocation": "fair"},
    "slo": {"overload": "ration", "allocation": "fair"},
    "equal": {"overload": "ration", "allocation": "results"},
    "storing": {"overload": "ration", "allocation": "fair", "capacity": 1e-6},
}
#: Seconds before the overload at which the plan is fixed, so that a plan published shortly before
#: can still begin.
SETTLING = 4.0
#: Maximum share of observations at which the rations of ``equal`` may differ, since a newly
#: published schedule has just been read.
UNEQUAL = 0.1
#: Settings that fix the running plan: no revisions, and a switching charge of a thousand times the
#: cost of a new step.
FIXED: dict[str, Any] = {"revision_gain": "none", "switching": 1000.0}
#: Ratio of the flood's rate to the calm rate before it; and the share of the flood below which a
#: pipeline's rate counts as its capacity.
CALM, ENOUGH = 8, 0.7
#: Seconds between two observations of a running pipeline.
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
    """Measure the capacity, then all policies at all multiples of it; return the figures."""
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
    """Measure the capacity in rows per second, under a flood of input that exceeds it."""
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
    """Return the epoch whose statistics the running plan was made from.

    Raises:
        WrongResultError: the plan was made without statistics.
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
    """Map query and alias to the maximum age of members in seconds; empty without event times."""
    if not workload.timed:
        return {}
    return {
        # The first term is the greatest distance between members of a result; all members must be
        # fresh enough.
        q.name: dict.fromkeys(q.tables, (len(q.tables) - 1) * options.window + options.latency)
        for q in workload.queries
    }


@dataclass(slots=True)
class _Watch:
    """Periodic observations of a running pipeline.

    Attributes:
        measured: whether observations count now, i.e. during the measured time.
        planned: batch -> time at which it was planned, in microseconds since 1970.
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
        """Share of the counted observations at which a completeness floor was broken."""
        return round(mean(self._broken), 3) if self._broken else 0.0

    @property
    def budget(self) -> float:
        """Mean budget of the counted observations."""
        return round(mean(self._budgets), 3) if self._budgets else 1.0

    @property
    def unequal(self) -> float:
        """Share of the counted observations at which goals had different rations."""
        return round(mean(self._unequal), 3) if self._unequal else 0.0

    def until(self, moment: float) -> None:
        """Observe the pipeline until ``moment`` (seconds since 1970)."""
        self.while_(lambda: time.time() < moment)

    def while_(self, lasts: Callable[[], bool]) -> None:
        """Observe the pipeline as long as ``lasts`` returns true."""
        while lasts():
            self.pipeline.check()
            self.look()
            time.sleep(_LOOKING)

    def look(self) -> None:
        """Record batches' planning times, which the journal soon forgets, and figures
        of rationing.
        """
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
    """Return the results of the batches that have read rows after the first ``rows`` rows."""
    read = found = 0
    for batch in batches:
        read += batch.tuples
        found += batch.results if read > rows else 0
    return found


def _orders(
    pipeline: Pipeline, namespace: str, log: list[BatchLog], begin: float, ended: float
) -> str:
    """Return as text the number of different probe orders of batches, and the last one's digest."""
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
    """Wait until ``rows`` rows have been committed and the runtime runs; without ``owed``, also
    until no results are owed. Returns whether this took less than ``most`` seconds.
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
    """Return DuckDB's number of results without rations, over the first ``ticks`` ticks' rows."""
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
    """Count results of batches with a known planning time: all of them (``looked``), and the stale
    ones (``stale``), with a member that was too old at that time.
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
    """Return the table: a row per load and policy."""
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
    """Measure and print; returns the exit code."""
    return run_benchmark("papers.jaqpot.live", BENCHMARK, arguments, _common)


if __name__ == "__main__":
    sys.exit(main())
