"""One measured run of the whole system: Redis, service and runtime as processes, as users run it.

The runtime's own log says what every batch did and when. The first batch is the warm-up: the
sustained rate is taken from its commit, the moment from which the second can start, to the last
commit. So everything that the later batches cost is in it, whatever happens between them.
"""

from __future__ import annotations

import json
import time
import uuid
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any

import psutil

from anabranch_client.meter import ProcessMeter
from anabranch_client.oracle import Active, compare
from anabranch_client.pipeline import Pipeline, PipelineSpec, running
from anabranch_client.tpch import QUERIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from anabranch_client.api import Client
    from anabranch_client.channel import Progress
    from anabranch_client.oracle import Comparison
    from anabranch_client.scenario import RecordedStream

#: Phases of a task: the slowest task's, per batch.
TASK_PHASES = ("read", "store", "wait", "probe", "write")
#: All phases of a run, in order. ``spark``: of the job, what no phase of its tasks explains;
#: ``between``: from a commit to the next batch.
PHASES = ("between", "enter", *TASK_PHASES, "spark", "commit")

#: Nothing lasts this long but a hanging run.
_PATIENCE = 900.0
#: Seconds between samples of the processes, and looks at the progress: the one who measures
#: shares the cores with what is measured.
_SAMPLING = 0.5
_POLLING = 0.1


class WrongResultError(Exception):
    """The system did not give the oracle's results, so there is nothing to report."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """What distinguishes the runs of one invocation.

    Attributes:
        mode: ``step`` waits for the planner at every epoch boundary, ``live`` plans meanwhile.
        batches: into which the input is cut.
        epoch_batches: batches per epoch.
    """

    mode: str
    batches: int
    epoch_batches: int

    @property
    def name(self) -> str:
        """For people: unique in an invocation."""
        return f"{self.mode}, {self.batches} batches"


@dataclass(frozen=True, slots=True)
class BatchLog:
    """What the runtime's log says about one batch; times in seconds."""

    batch: int
    epoch: int
    tuples: int
    results: int
    committed_at: float
    enter: float
    job: float
    commit: float
    tasks: dict[str, float]


@dataclass(frozen=True, slots=True)
class SystemRun:
    """What one run measured.

    Attributes:
        seconds, tuples: of the batches after the first, as the module describes.
        enter_seconds: of those, spent on entering epochs: the wait for the planner and then
            the work on the state. Without waiting it is only the work.
        total_seconds, total_tuples: of all batches, from the moment the first may start.
        cpu_seconds: of all processes of the system over the same time.
        other_cpu_seconds: of everybody else on the machine meanwhile.
        phases: phase -> seconds, of the batches after the first.
    """

    configuration: Configuration
    seconds: float
    tuples: int
    enter_seconds: float
    total_seconds: float
    total_tuples: int
    cpu_seconds: float
    other_cpu_seconds: float
    peak_rss_bytes: int
    state_bytes: int
    epochs: int
    results: dict[str, int]
    phases: dict[str, float]
    batches: tuple[BatchLog, ...]

    @property
    def rate(self) -> float:
        """Input tuples per second, sustained."""
        return self.tuples / self.seconds

    @property
    def rate_without_enter(self) -> float:
        """The same without the time that entering epochs took."""
        return self.tuples / (self.seconds - self.enter_seconds)

    def to_json(self) -> dict[str, Any]:
        """For the benchmark's line."""
        return {
            "mode": self.configuration.mode,
            "batches": self.configuration.batches,
            "epoch_batches": self.configuration.epoch_batches,
            "epochs": self.epochs,
            "tuples_per_s": round(self.rate, 1),
            "tuples_per_s_without_enter": round(self.rate_without_enter, 1),
            "seconds": round(self.seconds, 3),
            "tuples": self.tuples,
            "total_seconds": round(self.total_seconds, 3),
            "total_tuples": self.total_tuples,
            "cpu_seconds": round(self.cpu_seconds, 2),
            "other_cpu_seconds": round(self.other_cpu_seconds, 2),
            "peak_rss_bytes": self.peak_rss_bytes,
            "state_bytes": self.state_bytes,
            "results": self.results,
            "phases": {name: round(self.phases[name], 3) for name in PHASES},
            "per_batch": [
                [b.tuples, b.results, round(b.enter, 3), round(b.job, 3), round(b.commit, 3)]
                for b in self.batches
            ],
        }


def run_system(
    configuration: Configuration,
    streams: Sequence[RecordedStream],
    home: Path,
    *,
    master: str,
    parallelism: int,
) -> SystemRun:
    """Run all queries over ``streams`` below the folder ``home``.

    Raises:
        WrongResultError: the results are not the oracle's.
        ClientError: a process failed.
    """
    spec = PipelineSpec(
        home=home,
        results=home / "results",
        mode=configuration.mode,
        namespace=f"bench-{uuid.uuid4().hex[:12]}",
        optimizer="clash",
        parallelism=parallelism,
        epoch_batches=configuration.epoch_batches,
        master=master,
    )
    spec.results.mkdir(parents=True)
    with running(spec) as pipeline:
        with pipeline.start_service() as client:
            _register(client, streams)
        pipeline.channel.open_gate(0)
        pipeline.start_runtime()
        pipeline.wait_for_runtime()
        meter, busy, began = ProcessMeter(pipeline.pids, _SAMPLING), _busy_seconds(), time.time()
        meter.start()
        try:
            pipeline.channel.open_gate(None)
            _wait(pipeline, lambda p: p.committed >= configuration.batches)
        finally:
            meter.stop()
        busy = _busy_seconds() - busy
        progress = _wait(pipeline, lambda p: p.exhausted)
        pipeline.finish_runtime()
    log = read_log(spec.logs / "runtime.log")
    results = _checked(streams, spec.results, progress)
    first, later = log[0], log[1:]
    seconds = log[-1].committed_at - first.committed_at
    return SystemRun(
        configuration=configuration,
        seconds=seconds,
        tuples=sum(b.tuples for b in later),
        enter_seconds=sum(b.enter for b in later),
        total_seconds=log[-1].committed_at - began,
        total_tuples=progress.input_tuples,
        cpu_seconds=meter.cpu_seconds,
        other_cpu_seconds=max(busy - meter.cpu_seconds, 0.0),
        peak_rss_bytes=meter.peak_rss_bytes,
        state_bytes=progress.state_bytes,
        epochs=len({b.epoch for b in log}),
        results={name: found.results for name, found in results.items()},
        phases=phases(later, seconds),
        batches=tuple(log),
    )


def read_log(path: Path) -> list[BatchLog]:
    """The committed batches that the runtime's log ``path`` speaks of, in order."""
    found = []
    for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if not text.startswith("{"):
            continue
        entry = json.loads(text)
        if entry.get("event") == "batch committed":
            found.append(
                BatchLog(
                    batch=entry["batch"],
                    epoch=entry["epoch"],
                    tuples=entry["tuples"],
                    results=entry["results"],
                    committed_at=datetime.fromisoformat(entry["timestamp"]).timestamp(),
                    enter=entry["enter_ms"] / 1e3,
                    job=entry["job_ms"] / 1e3,
                    commit=entry["commit_ms"] / 1e3,
                    tasks={name: ms / 1e3 for name, ms in entry["task_ms"].items()},
                )
            )
    return found


def phases(batches: Sequence[BatchLog], seconds: float) -> dict[str, float]:
    """Phase -> seconds over ``batches``, which took ``seconds`` altogether.

    A phase's time in a batch is the slowest task's. Those need not be one task's, so ``spark``
    is at least what is left for Spark, but never below nothing.
    """
    found = {name: sum(b.tasks[name] for b in batches) for name in TASK_PHASES}
    found["spark"] = sum(max(b.job - sum(b.tasks.values()), 0.0) for b in batches)
    found["enter"] = sum(b.enter for b in batches)
    found["commit"] = sum(b.commit for b in batches)
    known = sum(b.enter + b.job + b.commit for b in batches)
    found["between"] = max(seconds - known, 0.0)
    return {name: found[name] for name in PHASES}


def _register(client: Client, streams: Sequence[RecordedStream]) -> None:
    for stream in streams:
        client.create_stream(
            stream.name,
            stream.columns,
            lateness=stream.lateness,
            source={
                "format": "recorded",
                "path": str(stream.path),
                "rows_per_batch": stream.rows_per_batch,
            },
        )
    for query in QUERIES:
        client.create_query(query.sql, name=query.name)


def _wait(pipeline: Pipeline, done: Callable[[Progress], bool]) -> Progress:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        pipeline.check()
        progress = pipeline.channel.progress()
        if progress is not None and done(progress):
            return progress
        time.sleep(_POLLING)
    raise TimeoutError(f"the run has not ended after {_PATIENCE:.0f} s")


def _checked(
    streams: Sequence[RecordedStream], results: Path, progress: Progress
) -> dict[str, Comparison]:
    """Compare the result files, row by row, with the oracle; and what was counted, with them."""
    always = Active(activated=0, expired=None, visible_from={})
    found = compare(streams, [(query, always) for query in QUERIES], results)
    for name, one in found.items():
        if not one.match:
            raise WrongResultError(
                f"{name}: {one.missing} of {one.expected} rows missing, {one.surplus} too many"
            )
        if progress.results.get(name) != one.results:
            raise WrongResultError(
                f"{name}: {progress.results.get(name)} rows reported, {one.results} written"
            )
    return found


def _busy_seconds() -> float:
    """CPU seconds that all processes of the machine have used since it started."""
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))
