"""Memory and files of a pipeline while queries come and go for a long time: does anything grow?

``python -m benchmarks.queries.churn [--json] [--queries 200] [--change 10] [--epochs 200]``

Valkey, service and runtime run as processes with the settings of ``anabranch up``, except that
epochs end a second after a change. The ``--streams`` streams have ``--rate`` rows per second
together, in files; windows are ten seconds long, so the state soon reaches its full size. In every
epoch ``--change`` queries are registered with one request, and as many of the oldest are deleted
one by one. With ``--steady-minutes``, five queries run for this time instead, without any change.

Measured every two seconds: resident memory by kind of process; Valkey's memory and keys, and memory
by kind of key; bytes of the largest manifest; and bytes and files of the state folder, by content.
The first fifth of the time is the warm-up. For the rest, medians of the first quarter and of the
last quarter are compared.

Two things grow by design: Valkey keeps rulesets, plans and statistics of all epochs up to
``--kept-bytes`` (256 MB), and only the newest beyond that; and a log of found files has about 60
bytes for each file that ever arrived (``state: files``).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pyarrow.parquet as pq

from anabranch_client.processes.meter import Sampler
from anabranch_client.processes.pipeline import Pipeline, running
from benchmarks.command import Benchmark, run_benchmark, spread
from benchmarks.kinds import Kind
from benchmarks.queries import whole, workload
from benchmarks.queries.registration import common
from benchmarks.report.figures import tell
from benchmarks.report.grids import Grid

#: Number of queries in a run without changes.
STEADY = 5
WINDOW, LATENESS = "10 seconds", "5 seconds"
#: Seconds between two files; number of groups of streams that take turns with files; and seconds of
#: rows for which :data:`~.batches.VALUES` is chosen.
TICK, TURNS, SPAN = 1.0, 4, 2.0
#: Seconds between two samples, and share of the time that is left out at the beginning.
SAMPLING, WARM_UP = 2.0, 0.2
#: Ratio from which on a measure counts as growing.
FLAT = 1.1
#: The measures that should stay flat -> unit; the other samples show where growth comes from.
MEASURES = {
    "driver JVM": "MB",
    "driver Python": "MB",
    "workers": "MB",
    "service": "MB",
    "planner": "MB",
    "Valkey": "MB",
    "Valkey's keys": "",
    "manifest": "MB",
    "state folder": "MB",
    "state folder's files": "",
}


def measure(options: argparse.Namespace, home: Path) -> dict[str, Any]:
    """Run the pipeline, with or without changes of queries, and take samples."""
    steady: float = options.steady_minutes
    queries = _queries(options.streams)
    begun = list(itertools.islice(queries, STEADY if steady else options.queries))
    names = workload.streams(options.streams)
    with running(whole.spec(home, options.tasks)) as pipeline:
        with pipeline.start_service() as client:
            whole.create_streams(client, names, home, LATENESS)
        feeder = _Feeder(home, names, options.rate)
        with httpx.Client(base_url=pipeline.url, timeout=120) as http:
            whole.register(http, begun)
            pipeline.start_runtime("--epoch-seconds", "1")
            server, keys = whole.connect(pipeline)
            whole.wait(
                pipeline,
                "activation",
                lambda: int(server.hlen(keys.activations)) >= len(begun),
            )
            samples = _Samples(pipeline)
            began = time.monotonic()
            feeder.start()
            samples.start()
            try:
                if steady:
                    _stay(pipeline, began + 60 * steady)
                    taken = []
                else:
                    taken = _change(pipeline, http, begun, queries, options)
            finally:
                samples.stop()
                feeder.stop()
        seconds = time.monotonic() - began
        progress = pipeline.progress()
        passed = (
            (pipeline.spec.logs / "service.log")
            .read_text(encoding="utf-8", errors="replace")
            .count("planning is slower than epochs")
        )
    return {
        "seconds": round(seconds, 1),
        "epoch_s": spread(taken, 2) if taken else None,
        "last_epoch": progress.epoch if progress else None,
        "passed_over": passed,
        "rows": progress.input_tuples if progress else 0,
        "results": sum(progress.results.values()) if progress else 0,
        "growth": growth(samples.found),
    }


def _queries(streams: int) -> Iterator[workload.Query]:
    """Yield queries without end, each with a short window."""
    return (replace(q, window=WINDOW) for q in workload.queries(sys.maxsize, streams))


def _change(
    pipeline: Pipeline,
    http: httpx.Client,
    begun: Sequence[workload.Query],
    queries: Iterator[workload.Query],
    options: argparse.Namespace,
) -> list[float]:
    """Register some queries and delete some in every epoch; return the seconds of each epoch."""
    here, taken = list(begun), []
    for number in range(options.epochs):
        began, epoch = time.monotonic(), _epoch(pipeline)
        fresh = list(itertools.islice(queries, options.change))
        whole.register(http, fresh)
        for query in here[: options.change]:
            http.delete(f"/v1/queries/{query.name}").raise_for_status()
        here = here[options.change :] + fresh
        whole.wait(pipeline, "the next epoch", lambda since=epoch: _epoch(pipeline) > since)  # type: ignore[misc]
        taken.append(time.monotonic() - began)
        if not (number + 1) % 20:
            tell(f"{number + 1} epochs, {statistics.median(taken[-20:]):.2f} s each")
    return taken


def _stay(pipeline: Pipeline, until: float) -> None:
    while time.monotonic() < until:
        pipeline.check()
        time.sleep(1.0)


def _epoch(pipeline: Pipeline) -> int:
    progress = pipeline.progress()
    return -1 if progress is None else progress.epoch


class _Feeder(threading.Thread):
    """Thread that writes files with rows of the present time; streams take turns."""

    def __init__(self, home: Path, names: Sequence[str], rate: float) -> None:
        super().__init__(name="feeder", daemon=True)
        self._home, self._names, self._rate = home, names, rate
        self._over = threading.Event()

    def run(self) -> None:
        """Write files until stopped."""
        drawn = np.random.default_rng(0)
        each = self._rate / len(self._names)
        for number in itertools.count():
            for name in self._names[number % TURNS :: TURNS]:
                count = max(round(each * TICK * TURNS), 1)
                since = time.time() - TICK
                file = self._home / name / f"_{number:06}.parquet"
                pq.write_table(whole.rows(count, each * SPAN, since, TICK, drawn), file)
                file.rename(file.with_name(file.name[1:]))
            if self._over.wait(TICK):
                return

    def stop(self) -> None:
        """Stop the thread and wait for its end."""
        self._over.set()
        self.join()


@dataclass
class _Samples(Sampler):
    """Samples memory, Valkey and the state folder.

    Attributes:
        found: figures of each sample; bytes and counts.
    """

    pipeline: Pipeline
    found: list[dict[str, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__(SAMPLING)
        self._server, self._keys = whole.connect(self.pipeline)

    def begin(self) -> None:
        """Set no baseline: the first sample is one like the others."""

    def sample(self) -> None:
        """Take one sample."""
        held = whole.resident(self.pipeline)
        found: dict[str, float] = {
            "driver JVM": held[Kind.JVM],
            "driver Python": held[Kind.DRIVER],
            "workers": held[Kind.WORKERS],
            "service": held[Kind.SERVICE],
            "planner": held[whole.PLANNER],
            "Valkey": self._server.info("memory")["used_memory"],
            "Valkey's keys": int(self._server.dbsize()),
        }
        self.found.append(found | self._of_keys() | self._of_state())

    def _of_keys(self) -> dict[str, float]:
        """Return the bytes of Valkey's keys, by the first word after the namespace."""
        names = [str(name) for name in self._server.scan_iter(count=1000)]
        with self._server.pipeline(transaction=False) as pipe:
            for name in names:
                pipe.memory_usage(name)
            sizes = pipe.execute()
        total: Counter[str] = Counter()
        for name, size in zip(names, sizes, strict=True):
            total[f"Valkey: {name.split(':')[1]}"] += int(size or 0)
        return {**total}

    def _of_state(self) -> dict[str, float]:
        """Return bytes and number of files of the state folder, and of each folder in it."""
        state = self.pipeline.spec.state
        sizes: Counter[str] = Counter()
        files: Counter[str] = Counter()
        manifests: dict[Path, int] = {}
        for path in state.rglob("*"):
            try:
                size = path.stat().st_size if path.is_file() else None
            except FileNotFoundError:  # gone meanwhile
                continue
            if size is not None:
                part = path.relative_to(state).parts[0]
                sizes[part] += size
                files[part] += 1
                if path.parent == state / "manifest":
                    manifests[path] = size
        return {
            "manifest": max(manifests.values(), default=0),
            "state folder": sizes.total(),
            "state folder's files": files.total(),
            **{f"state: {part}": size for part, size in sizes.items()},
            **{f"state: {part}, files": count for part, count in files.items()},
        }


def growth(samples: Sequence[dict[str, float]]) -> dict[str, dict[str, float]]:
    """Map each measure to the medians of its first and its last quarter, and their ratio.

    >>> growth([{"a": 9}] * 2 + [{"a": 2}] * 4 + [{"a": 4}] * 4)["a"]["ratio"]
    2.0
    """
    later = samples[int(len(samples) * WARM_UP) :]
    quarter = max(len(later) // 4, 1)
    found = {}
    for name in sorted({name for sample in later for name in sample}):
        first, last = (
            statistics.median(sample.get(name, 0) for sample in part)
            for part in (later[:quarter], later[-quarter:])
        )
        found[name] = {"first": first, "last": last, "ratio": last / first if first else 0.0}
    return found


def tables(found: dict[str, Any]) -> list[Grid]:
    """Return the tables: measures that should stay flat, and other samples."""
    settings, all_of = found["settings"], found["growth"]
    if settings["steady_minutes"]:
        title = f"{STEADY} queries for {settings['steady_minutes']:g} minutes"
    else:
        title = (
            f"{settings['queries']:,} queries, {settings['change']} of them changed in each of "
            f"{settings['epochs']} epochs"
        )
        title += f" of {found['epoch_s']['median']:.1f} s, {found['passed_over']} passed over"
    head = ("measure", "first quarter", "last quarter", "ratio")
    others = {name: "" if name.endswith(", files") else "MB" for name in all_of} | MEASURES
    return [
        Grid(title, head, tuple(_line(all_of, *one) for one in MEASURES.items())),
        Grid(
            "Where it is",
            head,
            tuple(_line(all_of, *one) for one in others.items() if one[0] not in MEASURES),
        ),
    ]


def _line(found: dict[str, dict[str, float]], name: str, unit: str) -> tuple[str, ...]:
    one = found[name]
    first, last = (
        f"{one[at] / 1e6:,.2f} MB" if unit else f"{one[at]:,.0f}" for at in ("first", "last")
    )
    return name, first, last, f"{one['ratio']:.2f}" if one["first"] else "–"


def grown(found: dict[str, Any]) -> dict[str, float]:
    """Return the ratios of measures that should stay flat, except measures of missing processes."""
    growing = found["growth"]
    return {name: growing[name]["ratio"] for name in MEASURES if growing[name]["first"]}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--queries", type=int, default=200)
    parser.add_argument("--change", type=int, default=10, help="queries in, and out, per epoch")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--streams", type=int, default=20)
    parser.add_argument("--rate", type=float, default=200.0, help="rows per second, of all")
    parser.add_argument("--steady-minutes", type=float, default=0.0, help="instead, no changes")
    parser.add_argument("--tasks", type=int, default=2, help="Spark's")


BENCHMARK = Benchmark(
    "churn",
    "Whether anything grows while queries come and go for a long time.",
    _options,
    measure,
    tables,
)

if __name__ == "__main__":
    sys.exit(run_benchmark("queries", BENCHMARK, None, common))
