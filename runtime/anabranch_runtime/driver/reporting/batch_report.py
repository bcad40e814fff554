"""Durations of a committed batch: a log line, and a report for the service."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import structlog

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.ages import bin_of, summed
from anabranch_contract.protocol.batches import PHASES, BatchReport
from anabranch_contract.protocol.progress import Telemetry
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.state.manifest import State

_LOG = structlog.get_logger("anabranch.runtime")


class Times(NamedTuple):
    """Times of a batch's start, of its job's start and end, and of its commit, in seconds."""

    started: float
    entered: float
    done: float
    committed: float = 0.0

    def phases(self, reports: Sequence[TaskReport]) -> dict[str, float]:
        """Return phase -> seconds of a batch, in its slowest task; ``spark``: the job's rest."""
        job, tasks = self.done - self.entered, task_phases(reports)
        spark = max(job - sum(tasks.values()), 0.0)
        commit = self.committed - self.done
        return {"enter": self.entered - self.started, "spark": spark, **tasks, "commit": commit}


def batch_report(state: State, reports: Sequence[TaskReport], times: Times) -> BatchReport:
    """Return the service's report of the batch that ended in ``state``."""
    work = [sum(s for phase, s in r.phases.items() if phase != "wait") for r in reports]
    slowest = max(range(len(work)), key=work.__getitem__, default=0)
    phases = reports[slowest].phases if reports else {}
    return BatchReport(
        batch=state.next_batch - 1,
        epoch=state.epoch,
        ruleset_epoch=state.ruleset.epoch,
        revision=state.ruleset.revision,
        until=time.time(),
        tuples=sum(r.tuples for r in reports),
        results=sum(sum(r.results.values()) for r in reports),
        begin=_milliseconds(times.entered - times.started),
        job=_milliseconds(times.done - times.entered),
        commit=_milliseconds(times.committed - times.done),
        tasks=len(reports),
        slowest=slowest,
        phases={phase: _milliseconds(phases[phase]) for phase in PHASES if phases.get(phase)},
        work=_milliseconds(max(work, default=0.0)),
        mean_work=_milliseconds(sum(work) / len(work)) if work else 0,
        hosts=max(len({r.host.name for r in reports}), 1),
        sent=sum(sum(r.measured.sent.values()) for r in reports),
        sent_bytes=sum(r.measured.sent_bytes for r in reports),
    )


def log_batch(report: BatchReport, reports: Sequence[TaskReport]) -> None:
    """Log a committed batch; ``task_ms``: per phase, milliseconds of the slowest task."""
    _LOG.info(
        "batch committed",
        batch=report.batch,
        epoch=report.epoch,
        ruleset=str(RulesetId(report.ruleset_epoch, report.revision)),
        tuples=report.tuples,
        results=report.results,
        fetched=sum(r.fetched_bytes for r in reports),
        **({"hosts": report.hosts, "sent": report.sent_bytes} if report.hosts > 1 else {}),
        task_ms={phase: _milliseconds(s) for phase, s in task_phases(reports).items()},
        enter_ms=report.begin,
        job_ms=report.job,
        commit_ms=report.commit,
    )


def counted(
    known: Telemetry,
    now: float,
    spent: float,
    phases: Mapping[str, float],
    ages: Mapping[str, float],
) -> Telemetry:
    """Return ``known`` with a batch of ``spent`` seconds, committed at ``now`` (since 1970), added.

    Args:
        phases: phase -> seconds. ``ages``: stream -> age of its oldest row, seconds.
    """
    latencies, counts = known.latencies, dict(known.ages)
    for stream, age in ages.items():
        latencies = latencies.adding(age)
        counts[stream] = summed((counts.get(stream, {}), {bin_of(age): 1}))
    return replace(
        known,
        batches=known.batches + 1,
        seconds=known.seconds + spent,
        phases=known.phases | {p: known.phases.get(p, 0.0) + s for p, s in phases.items()},
        committed_at=now,
        latencies=latencies,
        ages=counts,
    )


def task_phases(reports: Sequence[TaskReport]) -> dict[str, float]:
    """Return phase -> seconds of the batch's task that took longest for this phase."""
    return {
        phase: max((r.phases.get(phase, 0.0) for r in reports), default=0.0) for phase in PHASES
    }


def _milliseconds(seconds: float) -> int:
    return round(1e3 * seconds)
