"""Worker of the runtime under a profiler: real planner, driver and worker in this process, one
task.

Spark, REST and separate processes are missing (:mod:`benchmarks.engine`), and the profiler slows
down every Python call. So the profile shows where CPU time is spent, but not how much.
"""

from __future__ import annotations

import cProfile
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from anabranch_client.replay.oracle import Active, compare
from anabranch_client.replay.scenario import RecordedStream
from anabranch_client.replay.tpch import QUERIES
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.joins import Stream, StreamName
from anabranch_contract.queries.types import parse_type
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.sources.blocks import Block
from anabranch_runtime.sources.recordings.recording import Recording, batches_of, convert, read_rows
from benchmarks.engine import Engine
from benchmarks.session import WrongResultError
from tests.support.surroundings.redis import redis_url


@dataclass(frozen=True, slots=True)
class Function:
    """CPU seconds of a function: ``own``, and ``total``, which includes the functions it calls."""

    name: str
    calls: int
    own: float
    total: float

    def to_json(self) -> dict[str, Any]:
        """The function as part of the benchmark's line."""
        return {
            "name": self.name,
            "calls": self.calls,
            "own": round(self.own, 4),
            "total": round(self.total, 4),
        }


@dataclass(frozen=True, slots=True)
class Profile:
    """Profile of the worker over a whole replay, including the first batch."""

    seconds: float
    results: dict[str, int]
    phases: dict[str, float]
    functions: tuple[Function, ...]


def profile_worker(
    streams: Sequence[RecordedStream], home: Path, *, epoch_batches: int, parallelism: int, top: int
) -> Profile:
    """Replay the queries over ``streams`` under the profiler; keep the ``top`` functions by own
    time.

    Raises:
        WrongResultError: the results are not the oracle's.
    """
    profile, phases = cProfile.Profile(), Counter[str]()

    def profiled(work: Callable[[], TaskReport]) -> TaskReport:
        profile.enable()
        try:
            return work()
        finally:
            profile.disable()

    with redis_url() as url:
        engine = Engine(
            home / "out",
            url,
            [planner_stream(s) for s in streams],
            QUERIES,
            parallelism=parallelism,
            every=epoch_batches,
            around=profiled,
        )
        recordings = recorded(streams, home)
        for batch in range(batches_of(recordings)):
            engine.run(lambda task, tasks, b=batch: blocks_of(recordings, b, task, tasks))  # type: ignore[misc]
            phases.update(engine.reports[0].phases)
        engine.finish()
    always = Active(activated=0, expired=None, visible_from={})
    runs = [(query, always) for query in QUERIES]
    found = compare(streams, runs, home / "out" / "results")
    wrong = sorted(name for name, one in found.items() if not one.match)
    if wrong:
        raise WrongResultError(f"not the oracle's results: {', '.join(wrong)}")
    functions = _functions(profile)
    return Profile(
        seconds=sum(one.own for one in functions),
        results={name: one.results for name, one in found.items()},
        phases=dict(phases),
        functions=tuple(functions[:top]),
    )


def planner_stream(stream: RecordedStream) -> Stream:
    """Return a recorded stream in the planner's form, without lateness."""
    columns = tuple((name, parse_type(kind)) for name, kind in stream.columns)
    return Stream(StreamName(stream.name), columns, stream.options.get("event_time"), None)


def recorded(streams: Sequence[RecordedStream], folder: Path) -> list[Recording]:
    """Convert the streams' files into recordings in ``folder``."""
    return [
        convert(
            StreamRecord(
                name=s.name,
                columns=tuple(ColumnRecord(name=n, type=t) for n, t in s.columns),
                source=SourceRecord(path=str(s.path), rows_per_batch=s.rows_per_batch),
            ),
            folder,
        )
        for s in streams
    ]


def blocks_of(
    recordings: Sequence[Recording], batch: int, task: int, tasks: int
) -> Iterator[Block]:
    """Return the part of a batch that task ``task`` of ``tasks`` reads."""
    for recording in recordings:
        first, last = recording.slice_of(batch)
        low = first + (last - first) * task // tasks
        high = first + (last - first) * (task + 1) // tasks
        for rows in read_rows(recording.path, low, high):
            yield Block(recording.stream, rows)


def _functions(profile: cProfile.Profile) -> list[Function]:
    """Return every function that was called, the greatest own time first."""
    profile.create_stats()
    found = [
        Function(_name(name, file, number), calls, own, total)
        for (file, number, name), (_, calls, own, total, _) in profile.stats.items()
    ]
    return sorted(found, key=lambda f: (-f.own, f.name))


def _name(function: str, file: str, number: int) -> str:
    """Return the name of a function with its file and line, from its package on.

    >>> _name("join", "/usr/lib/python3/site-packages/anabranch_runtime/task/probe.py", 12)
    'anabranch_runtime/task/probe.py:12 join'
    >>> _name("<built-in method numpy.array>", "~", 0)
    'numpy.array'
    """
    if file == "~":
        plain = re.sub(r" at 0x[0-9a-f]+", "", function)
        return re.sub(r"^<(?:built-in )?method (.*)>$", r"\1", plain)
    parts = file.replace("\\", "/").split("/")
    ours = next((i for i, p in enumerate(parts[:-1]) if p.startswith("anabranch_")), -2)
    return f"{'/'.join(parts[ours:])}:{number} {function}"
