"""Reports of batches as the REST API shows them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING

from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.protocol.batches import PHASES
from anabranch_contract.rest.epochs import BatchOut, PhaseOut

if TYPE_CHECKING:
    from anabranch_contract.protocol.batches import BatchReport


def batch_out(report: BatchReport) -> BatchOut:
    """One batch, with phases that add up to its time."""
    # Tasks round their phases, so these may exceed the job by some milliseconds.
    spark = max(report.job - sum(report.phases.values()), 0)
    work = {name: report.phases.get(name, 0) for name in PHASES}
    phases = {"begin": report.begin, **work, "spark": spark, "commit": report.commit}
    return BatchOut(
        batch=report.batch,
        epoch=report.epoch,
        ruleset=str(RulesetId(report.ruleset_epoch, report.revision)),
        committed_at=datetime.fromtimestamp(report.until, UTC),
        milliseconds=sum(phases.values()),
        tuples=report.tuples,
        results=report.results,
        tasks=report.tasks,
        slowest=report.slowest,
        skew=report.work / report.mean_work if report.mean_work else None,
        hosts=report.hosts,
        sent=report.sent,
        sent_bytes=report.sent_bytes,
        phases=[PhaseOut(name=name, milliseconds=took) for name, took in phases.items() if took],
    )
