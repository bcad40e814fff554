"""One run of a workload under one division of CPU time: real driver and worker, one task, one
ruleset.

Rations come from a schedule, which the runtime's own ``Rationer`` reads from Redis before every
batch, as in a pipeline. Limits of the paper's rivals are not rations of goals: they replace the
limits that the worker derives from rations (:func:`limited`).
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from unittest.mock import patch

import redis

from anabranch_contract import codec
from anabranch_contract.plans.rations import RationSchedule
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.measurements import Snapshot, Writes
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.statistics.statistics import Statistics, measured
from anabranch_planner.plans.optimise import Options
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.measure import interims
from anabranch_runtime.measure.join_samples import Steps
from anabranch_runtime.rations.limits import RationLimits
from anabranch_runtime.task import worker
from benchmarks.engine import Engine, planned
from benchmarks.papers.jaqpot.rations.workloads import Workload

#: Plans have no intermediate results, since their maintenance is not rationed.
OPTIONS = Options(mir=False)


@dataclass(frozen=True, slots=True)
class Planned:
    """A workload with the ruleset of all of its runs."""

    workload: Workload
    rules: Ruleset
    joins: tuple[JoinQuery, ...]


@dataclass(frozen=True, slots=True)
class Division:
    """Division of the CPU time of probes: rations or limits; without either, all tuples probe.

    Attributes:
        schedule: schedule of rations, with a stated budget. ``limits``: limits of edges on ranks.
    """

    schedule: RationSchedule | None = None
    limits: RationLimits | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """Results and CPU times of a run.

    Attributes:
        results: number of results by query.
        probing, writing: CPU seconds of steps, and of results (last checks, gathering, encoding).
        cpu: CPU seconds of all batches, including reading, storing, ranking and commits.
        interim: the measurements of the whole run as one period.
    """

    results: Mapping[str, int]
    probing: float
    writing: float
    cpu: float
    interim: Interim

    @property
    def rationed(self) -> float:
        """CPU seconds of steps and results, which rations divide."""
        return self.probing + self.writing


def plan_once(workload: Workload, home: Path, url: str) -> Planned:
    """Plan with the statistics of a whole run, which itself was planned without statistics."""
    rules, joins = planned(workload.streams, workload.queries, Statistics(), OPTIONS)
    engine = _engine(Planned(workload, rules, joins), home / "first", url)
    for batch in range(workload.batches):
        _batch(engine, workload, batch)
    last = engine.driver.control.last_boundary()
    assert last is not None
    assert last.snapshot is not None, "an epoch that ends with the run has statistics"
    engine.finish()
    shutil.rmtree(home / "first")
    known = measured(codec.loads(last.snapshot, Snapshot))
    return Planned(workload, *planned(workload.streams, workload.queries, known, OPTIONS))


def run(plan: Planned, home: Path, url: str, division: Division) -> Outcome:
    """Run all batches; state and result files are below ``home``, a new folder."""
    engine = _engine(plan, home, url, division)
    driver, workload = engine.driver, plan.workload
    if division.schedule is not None:
        key = driver.control.keys.rations
        redis.Redis.from_url(url).set(key, division.schedule.dumps())
    period = interims.begin(driver.state, time.monotonic())
    cpu, written = 0.0, Writes()
    for batch in range(workload.batches):
        started = time.process_time()
        reports = _batch(engine, workload, batch)
        cpu += time.process_time() - started
        written += sum((r.measured.emitted for r in reports), Writes())
    state = driver.state
    measured = interims.close(period, state, Steps().of(plan.rules), time.monotonic(), time.time())
    engine.finish()
    return Outcome(
        results={name: query.results for name, query in state.queries.items()},
        probing=sum(edge.seconds for edge in state.measured.edges.values()),
        writing=written.seconds,
        cpu=cpu,
        interim=replace(measured, results=written),
    )


@contextmanager
def limited(limits: RationLimits) -> Iterator[None]:
    """Context in which the worker's edges have these limits, whatever the rations of a batch."""
    with patch.object(worker, "rationing", lambda ruleset, rations: limits):
        yield


def _engine(plan: Planned, home: Path, url: str, division: Division | None = None) -> Engine:
    limits = None if division is None else division.limits

    def around(work: Callable[[], TaskReport]) -> TaskReport:
        if limits is None:
            return work()
        with limited(limits):
            return work()

    return Engine(
        home,
        url,
        plan.workload.streams,
        plan.workload.queries,
        every=plan.workload.batches,
        around=around,
        rules=plan.rules,
    )


def _batch(engine: Engine, workload: Workload, batch: int) -> list[TaskReport]:
    blocks = workload.blocks(batch)
    engine.run(lambda task, tasks: blocks)
    return engine.reports
