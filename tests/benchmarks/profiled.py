"""The worker under a profiler: the real planner, driver and worker in this process, one task.

What Spark, REST and processes add is left out (``tests.support.local_replay``), and the profiler
makes every Python call dearer: good for finding out where the work is, not how long it takes.
"""

from __future__ import annotations

import cProfile
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import structlog
import yaml

from anabranch_client.oracle import Active, compare
from anabranch_client.tpch import QUERIES
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.task.worker import run_task
from tests.benchmarks.system_run import WrongResultError
from tests.support.local_replay import LocalReplay
from tests.support.redis import redis_url

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from anabranch_client.scenario import RecordedStream
    from anabranch_runtime.context import BatchContext
    from anabranch_runtime.sources.recording import Recording
    from anabranch_runtime.task.worker import TaskReport


@dataclass(frozen=True, slots=True)
class Function:
    """A function's share; ``own`` and ``total`` (with what it calls) in seconds."""

    name: str
    calls: int
    own: float
    total: float

    def to_json(self) -> dict[str, Any]:
        """For the benchmark's line."""
        return {
            "name": self.name,
            "calls": self.calls,
            "own": round(self.own, 4),
            "total": round(self.total, 4),
        }


@dataclass(slots=True)
class ProfiledReplay(LocalReplay):
    """Runs the one task of a batch in the calling thread, where a profiler sees it."""

    profile: cProfile.Profile = field(default_factory=cProfile.Profile)
    phases: dict[str, float] = field(default_factory=dict)

    def _job(self, context: BatchContext, recordings: Sequence[Recording]) -> list[TaskReport]:
        rules = fetch_ruleset(context.redis_url, context.namespace, context.ruleset)
        blocks = self._blocks(context.batch, 0, recordings)
        self.profile.enable()
        try:
            report = run_task(
                context, rules, blocks, task=0, tasks=1, exchange=lambda message: [message]
            )
        finally:
            self.profile.disable()
        for phase, seconds in report.phases.items():
            self.phases[phase] = self.phases.get(phase, 0.0) + seconds
        return [report]


@dataclass(frozen=True, slots=True)
class Profile:
    """Where the worker's time went over a whole replay, first batch included."""

    seconds: float
    results: dict[str, int]
    phases: dict[str, float]
    functions: tuple[Function, ...]


def profile_worker(
    streams: Sequence[RecordedStream], home: Path, *, epoch_batches: int, parallelism: int, top: int
) -> Profile:
    """Replay the queries over ``streams``; the ``top`` functions by their own time.

    Raises:
        WrongResultError: the results are not the oracle's.
    """
    home.mkdir(parents=True)
    scenario = home / "scenario.yaml"
    scenario.write_text(
        yaml.safe_dump(
            {
                "streams": {
                    s.name: {"path": str(s.path), "rows_per_batch": s.rows_per_batch}
                    for s in streams
                },
                "queries": {q.name: {"sql": q.sql} for q in QUERIES},
                "epochs": {"every": epoch_batches},
                "parallelism": parallelism,
            }
        )
    )
    with redis_url() as url:
        replay = ProfiledReplay(scenario, home / "out", url, tasks=1)
        # The driver would log to standard output, which belongs to the figures.
        structlog.configure(logger_factory=structlog.ReturnLoggerFactory())
        try:
            replay.run()
        finally:
            structlog.reset_defaults()
    always = Active(activated=0, expired=None, visible_from={})
    runs = [(query, always) for query in QUERIES]
    found = compare(streams, runs, home / "out" / "results")
    wrong = sorted(name for name, one in found.items() if not one.match)
    if wrong:
        raise WrongResultError(f"not the oracle's results: {', '.join(wrong)}")
    functions = _functions(replay.profile)
    return Profile(
        seconds=sum(one.own for one in functions),
        results={name: one.results for name, one in found.items()},
        phases=dict(replay.phases),
        functions=tuple(functions[:top]),
    )


def _functions(profile: cProfile.Profile) -> list[Function]:
    """Every function that was called, by its own time."""
    profile.create_stats()
    found = [
        Function(_name(name, file, number), calls, own, total)
        for (file, number, name), (_, calls, own, total, _) in profile.stats.items()
    ]
    return sorted(found, key=lambda f: (-f.own, f.name))


def _name(function: str, file: str, number: int) -> str:
    """Where a function is, from its package on.

    >>> _name("join", "/usr/lib/python3/site-packages/anabranch_runtime/probe.py", 12)
    'anabranch_runtime/probe.py:12 join'
    >>> _name("<built-in method numpy.array>", "~", 0)
    'numpy.array'
    """
    if file == "~":
        plain = re.sub(r" at 0x[0-9a-f]+", "", function)
        return re.sub(r"^<(?:built-in )?method (.*)>$", r"\1", plain)
    parts = file.replace("\\", "/").split("/")
    return f"{'/'.join(parts[-2:])}:{number} {function}"
