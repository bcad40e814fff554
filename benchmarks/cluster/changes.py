"""Cost of the batches after a host of a cluster has joined, and after one has been lost.

`python -m benchmarks.cluster.changes [--json] [--rounds 5] [--rows 4000] [--pace 1.0]`

Hosts are workers of Spark's standalone cluster, plain processes of one machine with a slot and a
directory each; the store is a folder. One pipeline (ten streams, six queries over three of them
each, ``benchmarks.runtime.workload``) runs a batch of ``--rows`` rows every ``--pace`` seconds.
Meanwhile a third host is added and the oldest host is lost, in turns; all processes of a lost host
are killed at once (SIGKILL). At the beginning the state of ``--before`` batches exists, and it
grows. All results are compared with DuckDB's.

A batch's time is measured from its beginning in the driver to its commit; after failed attempts,
from the end of the last failed one. *First* is the first batch on the new set of hosts; *dealt* is
the first batch of the next epoch, which assigns partitions to hosts again; *next* are the ten
batches after the first (without *dealt*); *neighbours* are the ten batches before the change and
the ten after the *next* ones. *Came after* is the time from the start of the host's worker to the
beginning of the first batch in which it took part; *noticed after* is the time from the kill to the
end of the attempt that failed because of it, if any did.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.cluster.standalone import Standalone, standalone
from benchmarks.cluster.surroundings import environment
from benchmarks.command import Benchmark, run_benchmark, spread
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid
from benchmarks.report.grids import spread as shown
from benchmarks.runtime import workload
from benchmarks.session import PATIENCE, Session, session

QUERIES = 6
#: Number of *next* batches, and of neighbours before and after a change.
SIDE = 10
#: Number of batches of an epoch.
EPOCH = 20
#: Kind of change, in the order of turns -> number of hosts after it.
CHANGES = {"added": 3, "lost": 2}
#: Measures of a change -> name and number of digits.
FIGURES = {
    "neighbours_ms": ("neighbours, ms", 0),
    "first_ms": ("first, ms", 0),
    "first": ("first / neighbours", 2),
    "dealt_ms": ("dealt, ms", 0),
    "dealt": ("dealt / neighbours", 2),
    "next": ("median next / neighbours", 2),
    "worst": ("slowest next / neighbours", 2),
    "fetched_mb": ("fetched, MB", 1),
    "state_mb": ("state, MB", 1),
    "wait_s": ("came / noticed after, s", 1),
}


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch that the runtime has committed; times are Unix seconds.

    Attributes:
        began: when the successful attempt at the batch began.
        failed: when earlier attempts at the batch failed.
    """

    number: int
    epoch: int
    hosts: int
    began: float
    committed: float
    fetched: int
    failed: tuple[float, ...] = ()

    @property
    def milliseconds(self) -> float:
        """Time of the batch from beginning to commit."""
        return 1000 * (self.committed - self.began)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rounds", type=int, default=5, help="hosts that come, and that go")
    parser.add_argument("--rows", type=int, default=4000, help="of a batch, of all streams")
    parser.add_argument("--before", type=int, default=40, help="batches that make the state")
    parser.add_argument("--pace", type=float, default=1.0, help="seconds between two batches")
    parser.add_argument("--parallelism", type=int, default=12, help="partitions per store")


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run a pipeline through all changes; return their figures by kind and round."""
    # Enough batches for the longest time that a host takes to join.
    batches = options.before + options.rounds * 2 * 8 * SIDE
    streams = workload.generate(home / "input", options.rows // workload.STREAMS * batches, batches)
    queries, cache = workload.queries(QUERIES), f"cache-{uuid.uuid4().hex}"
    with (
        standalone(home / "spark", CHANGES["lost"]) as hosts,
        environment(
            ANABRANCH_OBJECT_STORE=(home / "store").as_uri(),
            ANABRANCH_CACHE_DIRECTORY=cache,
            SPARK_CONF_DIR=str(hosts.settings),
        ),
        session(
            home / "system",
            streams,
            queries,
            master=hosts.master,
            parallelism=options.parallelism,
            epoch_batches=EPOCH,
        ) as system,
    ):
        system.start()
        system.gate(options.before)
        system.wait_for_batches(options.before)
        with _Paced(system, options.before, options.pace):
            _steady(system, CHANGES["lost"], 3 * SIDE)
            runs: dict[str, list[dict[str, float]]] = {kind: [] for kind in CHANGES}
            for number in range(options.rounds):
                for kind in CHANGES:
                    found = _change(system, hosts, kind)
                    found["state_mb"] = _bytes(home / "store") / 1e6
                    runs[kind].append({name: round(value, 3) for name, value in found.items()})
                    tell(f"round {number + 1}, {kind}: {runs[kind][-1]}")
        system.gate(None)
        system.finish(queries)
    return {"runs": runs}


def _change(system: Session, hosts: Standalone, kind: str) -> dict[str, float]:
    """Add or kill a host, wait for steady batches, and return the figures of the change."""
    before = read_batches(_log(system))[-1].number
    at = time.time()
    if kind == "added":
        hosts.add()
    else:
        hosts.lose()
    after = _steady(system, CHANGES[kind], EPOCH + 2 * SIDE, before)
    found = read_batches(_log(system))
    return figures(found, before, at, next(b.number for b in found if b.number >= after))


def figures(found: Sequence[Batch], last: int, at: float, first: int) -> dict[str, float]:
    """Return the figures of one change of the set of hosts.

    Args:
        found: all batches.
        last: number of the last batch before the change. at: time of the change.
        first: number of the first batch on the new set of hosts.
    """
    by = {batch.number: batch for batch in found}
    dealt = next(b for b in found if b.number > first and b.epoch != by[first].epoch)
    later = [b for b in found if b.number > first and b.number != dealt.number]
    some, settled = later[:SIDE], [b for b in later[SIDE:] if b.number > dealt.number][:SIDE]
    near = [by[n] for n in range(max(last - SIDE + 1, 0), last + 1)] + settled
    usual = statistics.median(b.milliseconds for b in near)
    after = [b.milliseconds for b in some]
    batch = by[first]
    return {
        "neighbours_ms": usual,
        "first_ms": batch.milliseconds,
        "first": batch.milliseconds / usual,
        "dealt_ms": dealt.milliseconds,
        "dealt": dealt.milliseconds / usual,
        "next": statistics.median(after) / usual,
        "worst": max(after) / usual,
        "fetched_mb": sum(b.fetched for b in (batch, dealt)) / 1e6,
        "wait_s": (batch.failed[-1] if batch.failed else batch.began) - at,
    }


def _steady(system: Session, hosts: int, batches: int, after: int = -1) -> int:
    """Wait until ``batches`` batches in a row, all later than batch ``after``, were committed on
    ``hosts`` hosts; return the number of the first of them.
    """
    deadline = time.monotonic() + PATIENCE
    while True:
        run: list[int] = []
        for batch in read_batches(_log(system)):
            if batch.number > after:
                run = [*run, batch.number] if batch.hosts == hosts else []
        if len(run) >= batches:
            return run[0]
        system.pipeline.check()
        if time.monotonic() > deadline:
            raise TimeoutError(f"no {batches} batches on {hosts} hosts")
        time.sleep(0.5)


class _Paced:
    """Context in which a batch may start every ``pace`` seconds."""

    def __init__(self, system: Session, batches: int, pace: float) -> None:
        self._system, self._batches, self._pace = system, batches, pace
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="pace", daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._over.wait(self._pace):
            self._batches += 1
            self._system.gate(self._batches)


def _log(system: Session) -> Path:
    return system.pipeline.spec.logs / "runtime.log"


def _bytes(folder: Path) -> int:
    found = 0
    for file in folder.rglob("*.pack"):
        # The runtime may have merged and deleted the file meanwhile.
        with suppress(FileNotFoundError):
            found += file.stat().st_size
    return found


def read_batches(log: Path) -> list[Batch]:
    """Return the committed batches in the runtime's log."""
    found, failed = [], []
    for entry in _entries(log):
        at = datetime.fromisoformat(entry["timestamp"]).timestamp()
        if entry["event"] == "batch attempt failed":
            failed.append(at)
        elif entry["event"] == "batch committed":
            spent = (entry["enter_ms"] + entry["job_ms"] + entry["commit_ms"]) / 1000
            began = max(at - spent, *failed) if failed else at - spent
            found.append(
                Batch(
                    entry["batch"],
                    entry["epoch"],
                    entry.get("hosts", 1),
                    began,
                    at,
                    entry["fetched"],
                    tuple(failed),
                )
            )
            failed = []
    return found


def _entries(log: Path) -> Iterator[dict[str, Any]]:
    for text in log.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True):
        # A line without a line end is still being written.
        if text.startswith("{") and text.endswith("\n"):
            entry = json.loads(text)
            if {"event", "timestamp"} <= entry.keys():
                yield entry


def tables(entry: dict[str, Any]) -> list[Grid]:
    """Return the table of the benchmark, a row per kind of change."""
    rows = []
    for kind, several in entry["runs"].items():
        cells = [
            shown(spread([one[name] for one in several], 3), digits)
            for name, (_, digits) in FIGURES.items()
        ]
        rows.append((f"{kind} ({len(several)} times)", *cells))
    columns = ("a host was", *(name for name, _ in FIGURES.values()))
    return [Grid("changes of hosts", columns, tuple(rows))]


BENCHMARK = Benchmark("changes", (__doc__ or "").split("\n", 1)[0], _options, measure, tables)


if __name__ == "__main__":
    sys.exit(run_benchmark("cluster", BENCHMARK, None, lambda _: None))
