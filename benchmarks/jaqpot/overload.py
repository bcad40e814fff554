"""A pipeline whose input outruns the machine: latency and results by policy.

``python -m benchmarks.jaqpot.overload [--json] [--times 1.5 2 4]``

A chain of four streams with windows of some seconds: tuples of R find many partners in S and those
many in T, and nearly nothing in U. Small files arrive by the clock, open loop: whatever the system
does not keep up with waits, and its waiting is measured. First the policy is to wait and far too
much arrives, which gives the rows per second that the machine manages in the end. Then some
multiples of that arrive for a while under each policy, in turns. A row's latency is the time from
when its file has got its name to the commit of its batch. Afterwards the input ends, what waits is
worked off, and the results are compared with DuckDB's: of all rows, without rations.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from anabranch_client.processes.allowed import Access
from anabranch_client.processes.pipeline import PipelineSpec, running
from benchmarks.command import Benchmark, made, quantile, run_benchmark
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.runtime.command import master
from benchmarks.session import PATIENCE, WrongResultError, read_log

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence
    from pathlib import Path

    from anabranch_client.processes.pipeline import Pipeline
    from benchmarks.session import BatchLog

#: Rows of a run whose latencies stand for all.
SAMPLED = 50_000
#: Seconds between two files of a stream.
TICK = 0.25
#: Keys of each stream, and how many partners a tuple finds in each window: R in S, S in T, T in U.
KEYS = {"r": ("a",), "s": ("a", "b"), "t": ("b", "c"), "u": ("c",)}
PARTNERS = {"a": 20.0, "b": 40.0, "c": 0.001}
#: Settings by the names of policies.
POLICIES: dict[str, dict[str, Any]] = {
    "wait": {"overload": "wait"},
    "fair": {"overload": "ration", "allocation": "fair"},
    "results": {"overload": "ration", "allocation": "results"},
    "catch-up": {"overload": "ration-with-catch-up", "allocation": "fair"},
}


@dataclass(frozen=True, slots=True)
class _Input:
    """Files that wait for their time: per tick one of each stream.

    Attributes:
        rows: of a tick, all streams.
    """

    ticks: tuple[tuple[Path, ...], ...]
    rows: int


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--times", type=float, nargs="+", default=[1.5, 2.0, 4.0])
    parser.add_argument("--policies", nargs="+", default=["wait", "fair", "results", "catch-up"])
    parser.add_argument("--optimizer", default="clash", help="shared: no intermediate results")
    parser.add_argument("--seconds", type=float, default=40.0, help="of overload")
    parser.add_argument("--calm", type=float, default=10.0, help="seconds at half of capacity")
    parser.add_argument("--window", type=float, default=4.0, help="seconds")
    parser.add_argument("--latency", type=float, default=2.0, help="seconds that are promised")
    parser.add_argument("--flood", type=float, default=400_000.0, help="rows/s, for the capacity")


def _common(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tasks", type=int, default=2, help="Spark's")
    parser.add_argument("--parallelism", type=int, default=1, help="partitions per store")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """The capacity, and then all policies at all multiples of it."""
    flood = _run(options, home, "wait", [(options.flood, options.seconds)])
    capacity = flood["rows_per_s"]
    tell(f"capacity {capacity:,.0f} rows/s")
    found = []
    for times in options.times:
        for policy in options.policies:
            load = [(capacity / 2, options.calm), (capacity * times, options.seconds)]
            one = _run(options, home, policy, load)
            found.append({"times": times, "policy": policy, **one})
            tell(
                f"{times} x {policy}: p50 {one['p50']:.2f} s, p99 {one['p99']:.2f} s, "
                f"{one['kept']:.2f} of the results"
            )
    return {"capacity": capacity, "runs": found}


def _run(
    options: argparse.Namespace, home: Path, policy: str, load: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    folder = made(home / "run")
    try:
        return _measured(options, folder, policy, load)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _measured(
    options: argparse.Namespace, folder: Path, policy: str, load: Sequence[tuple[float, float]]
) -> dict[str, Any]:
    phases = [_generate(folder / f"waiting{n}", options, *one) for n, one in enumerate(load)]
    spec = PipelineSpec(
        home=folder / "pipeline",
        results=folder / "pipeline" / "results",
        mode="live",
        optimizer=options.optimizer,
        epoch_batches=8,
        namespace=f"bench-{uuid.uuid4().hex[:12]}",
        master=master(options),
        parallelism=options.parallelism,
        access=Access((folder.resolve(),)),
    )
    made(spec.results)
    with running(spec) as pipeline, pipeline.start_service() as client:
        client.update_settings(
            **POLICIES[policy],
            latency_goal=options.latency,
        )
        for name, keys in KEYS.items():
            source = {"format": "files", "path": str(made(folder / name))}
            columns = [("ts", "timestamp"), *((key, "bigint") for key in keys), ("n", "bigint")]
            client.create_stream(
                name, columns, source={**source, "options": {"type": "parquet"}},
                event_time="ts", lateness="60 seconds",
            )  # fmt: skip
        client.create_query(_sql(options.window), name="chain", sink="count")
        pipeline.start_runtime()
        _wait(pipeline, 0)
        feeder = _Feeder(folder, phases)
        feeder.start()
        feeder.join()
        ended, budget = time.time(), _rationing(pipeline).budget
        sent = sum(len(p.ticks) * p.rows for p in phases)
        _wait(pipeline, sent)
        worked = time.time()
        if policy == "catch-up":
            _wait(pipeline, sent, owed=False)
        paid = time.time()
        progress = pipeline.channel.progress()
        activation = pipeline.channel.activations()["chain"]
        pipeline.finish_runtime()
        log = [b for b in read_log(spec.logs / "runtime.log") if b.tuples]
    kept, full = (progress.results.get("chain", 0) if progress else 0), _oracle(folder, options)
    if policy in ("wait", "catch-up") and kept != full:
        raise WrongResultError(f"{kept} results, {full} expected")
    if kept > full:
        raise WrongResultError(f"{kept} results, but only {full} without rations")
    # The last half of the overload: before, it has to be noticed, and orders are revised.
    begin = feeder.arrivals[-1][0] - load[-1][1] / 2
    waited = latencies(log, feeder.arrivals, begin)
    within = [b for b in log if begin <= b.committed_at <= ended]
    seconds = within[-1].committed_at - begin if within else 1.0
    late = activation.caught_up
    # What is made good is not estimated any more.
    estimate = kept + activation.withheld
    return {
        "p50": round(quantile(waited, 0.5), 3),
        "p99": round(quantile(waited, 0.99), 3),
        "rows_per_s": round(sum(b.tuples for b in within) / seconds, 1),
        "kept": round((kept - late) / full, 4) if full else 1.0,
        "estimated": round(kept / estimate, 4) if estimate else 1.0,
        "made_good": round(late / full, 4) if full else 0.0,
        "paid_after": round(paid - worked, 1),
        "results": kept,
        "full": full,
        "last_budget": budget,
    }


def _sql(window: float) -> str:
    reach = f"INTERVAL '{round(window * 1e6)}' MICROSECOND"

    def near(one: str, other: str) -> str:
        return f"{one}.ts BETWEEN {other}.ts - {reach} AND {other}.ts + {reach}"

    return (
        "SELECT r.n AS rn, s.n AS sn, t.n AS tn, u.n AS un "
        f"FROM r JOIN s ON r.a = s.a AND {near('r', 's')} "
        f"JOIN t ON s.b = t.b AND {near('s', 't')} JOIN u ON t.c = u.c AND {near('t', 'u')}"
    )


def _generate(folder: Path, options: argparse.Namespace, rate: float, seconds: float) -> _Input:
    """Files of a load of ``rate`` rows/s, all streams, that lasts so long."""
    made(folder)
    rows, count = max(round(rate / len(KEYS) * TICK), 1), round(seconds / TICK)
    # A tuple meets what has arrived up to a window before it, and later what comes after it.
    reach = rows / TICK * options.window
    draw, found = np.random.default_rng(round(rate)), []
    for tick in range(count):
        files = []
        for name, keys in KEYS.items():
            columns = {
                key: draw.integers(0, max(int(reach / PARTNERS[key]), 1), rows) for key in keys
            }
            path = folder / f"{tick:06d}-{name}.parquet"
            table = pa.table({**columns, "n": np.arange(rows, dtype=np.int64)})
            pq.write_table(table, path)
            files.append(path)
        found.append(tuple(files))
    return _Input(tuple(found), rows * len(KEYS))


class _Feeder(threading.Thread):
    """Names files when their time has come.

    Attributes:
        arrivals: (seconds since 1970, rows that have arrived since the beginning).
    """

    def __init__(self, folder: Path, phases: Sequence[_Input]) -> None:
        super().__init__(name="feeder", daemon=True)
        self._folder, self._phases = folder, phases
        self.arrivals: list[tuple[float, int]] = []

    def run(self) -> None:
        """Feed all phases."""
        ticks = [(files, phase.rows) for phase in self._phases for files in phase.ticks]
        began, total = time.time(), 0
        for number, (files, rows) in enumerate(ticks):
            due = began + (number + 1) * TICK
            time.sleep(max(due - time.time(), 0.0))
            for file in files:
                name = file.stem.rpartition("-")[2]
                self._stamp(file, due, rows // len(files))
                file.rename(self._folder / name / f"{number:06d}.parquet")
            total += rows
            self.arrivals.append((time.time(), total))

    def _stamp(self, file: Path, due: float, rows: int) -> None:
        """Give a file's rows the event times of its tick."""
        table = pq.read_table(file)
        first = int((due - TICK) * 1e6)
        times = first + np.arange(rows) * int(TICK * 1e6) // max(rows, 1)
        column = pa.array(times, pa.int64()).cast(pa.timestamp("us", tz="UTC"))
        pq.write_table(table.add_column(0, "ts", column), file)


def _rationing(pipeline: Pipeline) -> Any:
    progress = pipeline.channel.progress()
    assert progress is not None
    return progress.rationing


def _wait(pipeline: Pipeline, rows: int, *, owed: bool = True) -> None:
    """Wait until so many rows have been committed, and the runtime runs; without ``owed`` also
    until nothing is.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        pipeline.check()
        progress = pipeline.channel.progress()
        runs = progress is not None and progress.state in ("running", "idle")
        read = runs and progress is not None and progress.input_tuples >= rows
        if read and progress is not None and (owed or not progress.rationing.owed):
            return
        time.sleep(0.05)
    raise TimeoutError(f"{rows} rows have not been read after {PATIENCE:.0f} s")


def latencies(
    log: Sequence[BatchLog], arrivals: Sequence[tuple[float, int]], begin: float
) -> list[float]:
    """Seconds from arrival to commit of rows that arrived from ``begin`` on: of every row, or of
    evenly spread ones.

    Args:
        arrivals: (seconds since 1970, rows that have arrived so far), ascending.
    """
    times, counts = (np.array(column) for column in zip(*arrivals, strict=True))
    commits = np.array([batch.committed_at for batch in log])
    read = np.cumsum([batch.tuples for batch in log])
    rows = np.arange(0, read[-1], max(int(read[-1]) // SAMPLED, 1))
    arrived = times[np.searchsorted(counts, rows, side="right")]
    committed = commits[np.searchsorted(read, rows, side="right")]
    found: list[float] = (committed - arrived)[arrived >= begin].tolist()
    return found


def _oracle(folder: Path, options: argparse.Namespace) -> int:
    """How many results there are without rations."""
    with duckdb.connect() as connection:
        for name in KEYS:
            files = f"{folder / name}/*.parquet"
            connection.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{files}')")
        found = connection.execute(f"SELECT count(*) FROM ({_sql(options.window)})").fetchone()
        assert found is not None
        return int(found[0])


def tables(entry: dict[str, Any]) -> list[Grid]:
    """One row per load and policy."""
    rows = [
        (
            f"{one['times']:g} × {one['policy']}",
            f"{one['p50']:.2f}",
            f"{one['p99']:.2f}",
            f"{100 * one['kept']:.1f} %",
            f"{100 * one['estimated']:.1f} %",
            f"{100 * one['made_good']:.1f} %",
            f"{one['paid_after']:.1f}",
            f"{one['rows_per_s']:,.0f}",
        )
        for one in entry["runs"]
    ]
    kept = ("results kept", "as estimated", "made good", "paid after s")
    head = ("load and policy", "p50 s", "p99 s", *kept, "rows/s")
    return [Grid("overload", head, tuple(rows))]


BENCHMARK = Benchmark(
    "overload", "latency and results where input outruns the machine", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run_benchmark("jaqpot", BENCHMARK, None, _common))
