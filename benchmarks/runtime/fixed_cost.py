"""Time of a nearly empty batch with many registered queries, relative to Spark doing nothing.

Two pipelines exist at the same time, with the same Spark settings, over the same ten recorded
streams (one multiplexed source) with one row per stream and batch: our system with its queries, and
a ``foreachBatch`` with one trivial ``mapInArrow`` (``trivial``). They take turns in blocks of
batches; the waiting one is stopped (SIGSTOP), so that it takes no CPU time. A cycle is the time
from one commit to the next within a block, without the first of each block.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import signal
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import redis

from anabranch_client.processes.children import Child, signal_all, spawn
from anabranch_client.processes.children import session as processes_of
from anabranch_client.replay.scenario import RecordedStream
from anabranch_contract.protocol.keys import Keys
from benchmarks.command import Benchmark, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime import workload
from benchmarks.runtime.command import master, run
from benchmarks.session import PATIENCE, Session, session


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, nargs="+", default=[1, 50], help="each in turn")
    parser.add_argument("--rounds", type=int, default=5, help="blocks of each pipeline")
    parser.add_argument("--block", type=int, default=12, help="batches of a block")
    parser.add_argument("--warm-up", type=int, default=12, help="batches before the first block")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Measure the cycles of both pipelines for every number of queries."""
    batches = options.warm_up + options.rounds * options.block
    streams = workload.generate(home / "input", batches, batches)
    return {"counts": [_one(options, home / f"run-{n}", streams, n) for n in options.queries]}


def _one(
    options: argparse.Namespace, home: Path, streams: Sequence[RecordedStream], count: int
) -> dict[str, Any]:
    queries = workload.queries(count)
    with session(
        home / "system",
        streams,
        queries,
        master=master(options),
        parallelism=options.parallelism,
        epoch_batches=1_000_000,
    ) as system:
        system.start()
        with _trivial(home / "trivial", streams, system.pipeline.redis_url, options) as trivial:
            sides: dict[str, _Side] = {"system": _System(system), "trivial": trivial}
            cycles: dict[str, list[list[float]]] = {name: [] for name in sides}
            done = 0
            for number in range(options.rounds + 1):
                done += options.block if number else options.warm_up
                for name, side in sides.items():
                    other = next(s for n, s in sides.items() if n != name)
                    with other.stopped():
                        ends = side.advance(done)
                    if number:
                        gaps = itertools.pairwise(ends[-options.block :])
                        cycles[name].append([later - earlier for earlier, later in gaps])
        log = system.log()
        system.finish(queries)
    blocks = {n: [sorted(b)[len(b) // 2] for b in found] for n, found in cycles.items()}
    measured = log[options.warm_up :]
    tell(f"{count} queries: {spread(blocks['system'], 3)} against {spread(blocks['trivial'], 3)}")
    return {
        "queries": count,
        "joins": workload.distinct_joins(queries),
        "system_seconds": spread(blocks["system"], 4),
        "trivial_seconds": spread(blocks["trivial"], 4),
        "ratio": spread(
            (a / b for a, b in zip(blocks["system"], blocks["trivial"], strict=True)), 3
        ),
        "inside_driver_seconds": spread((b.enter + b.commit for b in measured), 4),
        "job_seconds": spread((b.job for b in measured), 4),
    }


class _Side:
    """One of the two pipelines."""

    def advance(self, batches: int) -> list[float]:
        """Let the pipeline commit ``batches`` further batches; return the time of each commit."""
        raise NotImplementedError

    def leader(self) -> int:
        """Process whose session contains all of the pipeline's processes."""
        raise NotImplementedError

    @contextlib.contextmanager
    def stopped(self) -> Iterator[None]:
        """Context in which all processes of the pipeline are stopped."""
        found = processes_of(self.leader())
        signal_all(found, signal.SIGSTOP)
        try:
            yield
        finally:
            signal_all(found, signal.SIGCONT)


class _System(_Side):
    def __init__(self, system: Session) -> None:
        self._system = system

    def leader(self) -> int:
        return self._system.roots()["runtime"]

    def advance(self, batches: int) -> list[float]:
        self._system.gate(batches)
        self._system.wait_for_batches(batches)
        return _until(lambda: [b.committed_at for b in self._system.log()], batches)


class _Trivial(_Side):
    def __init__(self, child: Child, commits: Path, url: str, namespace: str) -> None:
        self._child, self._commits = child, commits
        self._redis, self._gate = redis.Redis.from_url(url), Keys(namespace).gate

    def leader(self) -> int:
        return self._child.pid

    def advance(self, batches: int) -> list[float]:
        self._redis.set(self._gate, batches)
        return _until(self._ends, batches)

    def _ends(self) -> list[float]:
        self._child.check()
        if not self._commits.exists():
            return []
        return [float(text) for text in self._commits.read_text().split("\n")[:-1]]


def _until(ends: Callable[[], list[float]], batches: int) -> list[float]:
    deadline = time.monotonic() + PATIENCE
    while len(found := ends()) < batches:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{len(found)} of {batches} batches after {PATIENCE:.0f} s")
        time.sleep(0.05)
    return found


@contextlib.contextmanager
def _trivial(
    home: Path, streams: Sequence[RecordedStream], url: str, options: argparse.Namespace
) -> Iterator[_Trivial]:
    home.mkdir(parents=True)
    namespace = f"trivial-{uuid.uuid4().hex[:12]}"
    redis.Redis.from_url(url).set(Keys(namespace).gate, 0)
    given = {
        "streams": [
            {
                "name": s.name,
                "columns": [list(c) for c in s.columns],
                "path": str(s.path),
                "rows_per_batch": s.rows_per_batch,
            }
            for s in streams
        ],
        "redis": url,
        "namespace": namespace,
        "master": master(options),
        "home": str(home),
    }
    (home / "given.json").write_text(json.dumps(given))
    argv = [sys.executable, "-m", "benchmarks.runtime.trivial", str(home / "given.json")]
    child = spawn("trivial pipeline", argv, home / "trivial.log")
    try:
        side = _Trivial(child, home / "commits", url, namespace)
        _until(lambda: [0.0] if (home / "ready").exists() else [], 1)
        yield side
    finally:
        child.stop()


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table in milliseconds: a row per number of queries."""
    rows = [
        (
            *(f"{one['queries']:,}", f"{one['joins']:,}"),
            shown(one["system_seconds"], unit=1e-3),
            shown(one["trivial_seconds"], unit=1e-3),
            shown(one["ratio"], 2),
            shown(one["job_seconds"], unit=1e-3),
            shown(one["inside_driver_seconds"], unit=1e-3),
        )
        for one in entry["counts"]
    ]
    return [
        Grid(
            "nearly empty batches",
            (
                *("queries", "different joins", "cycle ms", "trivial cycle ms", "ratio"),
                *("of it the job", "driver before and after it"),
            ),
            tuple(rows),
        )
    ]


BENCHMARK = Benchmark(
    "fixed_cost", "nearly empty batches against Spark doing nothing", _options, measure, tables
)


if __name__ == "__main__":
    sys.exit(run(BENCHMARK))
