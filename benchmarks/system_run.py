"""One measured run of the whole system: Redis, service and runtime as processes, as users run them.

Counts and times of every batch come from the runtime's log. The first batch is the warm-up: the
sustained rate is measured from its commit, when the second one can start, to the last commit. So it
includes all costs of the later batches, and everything between them.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import QUERIES, DemoQuery
from benchmarks.kinds import KindMeter
from benchmarks.session import TASK_PHASES, BatchLog, session

#: All phases of a run, in order. ``spark``: time of the job outside all phases of its tasks;
#: ``between``: from a commit to the next batch.
PHASES = ("between", "enter", *TASK_PHASES, "spark", "commit")

#: Seconds between samples of the processes; samples take CPU time from the measured system.
SAMPLING = 0.5


@dataclass(frozen=True, slots=True)
class Configuration:
    """Settings in which the runs of one invocation differ.

    Attributes:
        mode: ``step`` waits for the planner at every epoch boundary, ``live`` plans meanwhile.
        batches: number of batches into which the input is cut.
        epoch_batches: batches per epoch.
    """

    mode: str
    batches: int
    epoch_batches: int
    optimizer: str = "clash"

    @property
    def name(self) -> str:
        """Name in tables, unique among configurations of one optimiser."""
        return f"{self.mode}, {self.batches} batches"


@dataclass(frozen=True, slots=True)
class SystemRun:
    """Measurements of one run.

    Attributes:
        seconds, tuples: time and input of the batches after the first (see the module's docstring).
        enter_seconds: the part of ``seconds`` spent on entering epochs: the wait for the planner
            (in step mode) and the work on the state.
        total_seconds, total_tuples: time and input of all batches, from the moment when the first
            may start.
        cpu_seconds: CPU seconds of all processes of the system over the same time.
        cpu_by_kind: the same by kind of process (:class:`benchmarks.kinds.Kind`).
        other_cpu_seconds: CPU seconds of other processes on the machine meanwhile.
        peak_rss_bytes, peak_pss_bytes: see :class:`benchmarks.kinds.KindMeter`.
        probes: number of tuples sent to stores.
        phases: phase -> seconds, of the batches after the first.
    """

    configuration: Configuration
    seconds: float
    tuples: int
    enter_seconds: float
    total_seconds: float
    total_tuples: int
    cpu_seconds: float
    cpu_by_kind: dict[str, float]
    other_cpu_seconds: float
    peak_rss_bytes: int
    peak_pss_bytes: int
    state_bytes: int
    probes: int
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
        """Input tuples per second, sustained, without the time of entering epochs."""
        return self.tuples / (self.seconds - self.enter_seconds)

    @property
    def cycles(self) -> list[float]:
        """Seconds from commit to commit of the batches after the first, without the time of
        entering epochs, which in step mode is mostly the wait for the planner.
        """
        return [
            later.committed_at - earlier.committed_at - later.enter
            for earlier, later in itertools.pairwise(self.batches)
        ]

    def to_json(self) -> dict[str, Any]:
        """The run as part of the benchmark's line."""
        return {
            "optimizer": self.configuration.optimizer,
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
            "cpu_by_kind": {kind: round(s, 2) for kind, s in self.cpu_by_kind.items()},
            "other_cpu_seconds": round(self.other_cpu_seconds, 2),
            "peak_rss_bytes": self.peak_rss_bytes,
            "peak_pss_bytes": self.peak_pss_bytes,
            "state_bytes": self.state_bytes,
            "probes": self.probes,
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
    queries: Sequence[DemoQuery] = QUERIES,
) -> SystemRun:
    """Run ``queries`` over ``streams`` below the folder ``home``.

    Raises:
        WrongResultError: the results differ from the oracle's.
        ClientError: a process failed.
    """
    with session(
        home,
        streams,
        queries,
        master=master,
        mode=configuration.mode,
        optimizer=configuration.optimizer,
        parallelism=parallelism,
        epoch_batches=configuration.epoch_batches,
    ) as system:
        system.start()
        meter, busy, began = KindMeter(system.roots, SAMPLING), _busy_seconds(), time.time()
        meter.start()
        try:
            system.gate(None)
            system.wait_for_batches(configuration.batches)
        finally:
            meter.stop()
        busy = _busy_seconds() - busy
        progress, results = system.finish(queries)
        log = system.log()
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
        cpu_by_kind=meter.cpu_by_kind,
        other_cpu_seconds=max(busy - meter.cpu_seconds, 0.0),
        peak_rss_bytes=meter.peak_rss_bytes,
        peak_pss_bytes=meter.peak_pss_bytes,
        state_bytes=progress.resources.state_bytes,
        probes=sum(progress.probes.values()),
        epochs=len({b.epoch for b in log}),
        results={name: found.results for name, found in results.items()},
        phases=phases(later, seconds),
        batches=tuple(log),
    )


def phases(batches: Sequence[BatchLog], seconds: float) -> dict[str, float]:
    """Return phase -> seconds over ``batches``, whose total time is ``seconds``.

    A phase's time in a batch is that of the slowest task. Phases may have different slowest tasks,
    so ``spark`` is a lower bound of Spark's share, and at least 0.
    """
    found = {name: sum(b.tasks[name] for b in batches) for name in TASK_PHASES}
    found["spark"] = sum(max(b.job - sum(b.tasks.values()), 0.0) for b in batches)
    found["enter"] = sum(b.enter for b in batches)
    found["commit"] = sum(b.commit for b in batches)
    known = sum(b.enter + b.job + b.commit for b in batches)
    found["between"] = max(seconds - known, 0.0)
    return {name: found[name] for name in PHASES}


def _busy_seconds() -> float:
    """Return the CPU seconds that all processes of the machine have used since its start."""
    times = psutil.cpu_times()
    return float(times.user + times.system + getattr(times, "nice", 0.0))
