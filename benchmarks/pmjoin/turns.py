"""Alternating runs of a workload with several settings, so that a slow machine slows all."""

from __future__ import annotations

import shutil
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from benchmarks.command import spread
from benchmarks.engine import Engine, planned
from benchmarks.pmjoin.workloads import Workload
from benchmarks.session import WrongResultError
from tests.support.surroundings.redis import redis_url

Side = TypeVar("Side")
Run = TypeVar("Run")
#: Figures of a run, by name.
Figures = dict[str, float]

#: Number of times that planning is timed.
PLANS = 5


@dataclass(frozen=True, slots=True)
class Batch:
    """A finished batch: wall seconds, and CPU seconds, which include the planning before it."""

    number: int
    seconds: float
    cpu: float


def in_turns(
    sides: Sequence[Side], rounds: int, run: Callable[[Side], Run]
) -> dict[Side, list[Run]]:
    """Run each setting ``rounds`` times in turns; every second round has the reverse order. A first
    run, which is slower because memory is new to the process, does not count.
    """
    run(sides[0])
    found: dict[Side, list[Run]] = {side: [] for side in sides}
    for number in range(rounds):
        for side in sides[:: -1 if number % 2 else 1]:
            found[side].append(run(side))
    return found


@contextmanager
def pipeline(workload: Workload, home: Path, **settings: Any) -> Iterator[Engine]:
    """Context with an engine for a workload, in a folder that is removed at the end.

    Args:
        settings: settings of :class:`Engine`.
    """
    with redis_url() as url:
        engine = Engine(home, url, workload.streams, workload.queries, **settings)
        yield engine
        engine.finish()
    shutil.rmtree(home)


def played(engine: Engine, workload: Workload) -> Iterator[Batch]:
    """Run a workload; yield every batch when it is finished.

    Raises:
        WrongResultError: DuckDB counts other results.
    """
    found = Counter[str]()
    for number in range(len(workload.batches)):
        began = time.process_time()
        seconds = engine.run(partial(workload.blocks, number))
        cpu = time.process_time() - began
        for report in engine.reports:
            found.update(report.results)
        yield Batch(number, seconds, cpu)
    if {name: found[name] for name in workload.results} != dict(workload.results):
        raise WrongResultError(f"{workload.name}: {dict(found)} results, not {workload.results}")


def measured(engine: Engine, workload: Workload, warm: int) -> Figures:
    """Return the work (probes and matches of all steps) and the seconds of a workload's batches.

    Args:
        warm: number of first batches that do not count.
    """
    found = dict.fromkeys(("work", "seconds", "cpu"), 0.0)
    for batch in played(engine, workload):
        if batch.number >= warm:
            found["work"] += engine.work
            found["seconds"] += batch.seconds
            found["cpu"] += batch.cpu
    return found


def kinds_chosen(engine: Engine) -> float:
    """Return the number of substreams of all starts in the last plan."""
    epoch = (engine.driver.state.next_batch - 1) // engine.every
    return float(sum(one.count for one in engine.ruleset(epoch).substreams))


def planning_seconds(engine: Engine) -> float:
    """Return the seconds of making one plan from the newest statistics."""
    known, found = engine.statistics(), []
    for _ in range(PLANS):
        began = time.perf_counter()
        planned(engine.streams, engine.queries, known, engine.options)
        found.append(time.perf_counter() - began)
    return statistics.median(found)


def ratio(
    some: Sequence[Figures], others: Sequence[Figures], figure: str, digits: int = 3
) -> dict[str, float]:
    """Return the ratios of a figure between runs of the same round: median and range."""
    pairs = zip(some, others, strict=True)
    return spread((a[figure] / b[figure] for a, b in pairs), digits)
