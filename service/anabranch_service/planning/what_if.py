"""The explanation of a plan: who costs what, what changes, and why.

Everything here is computed from a plan that has been made, costs no further solve, and is bounded
(:data:`FULL`, :data:`SUMMARY`). A failure costs the answer its explanation, never the plan.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

import structlog

from anabranch_contract.plans.ruleset import HotValue, Substreams
from anabranch_contract.queries.joins import JoinQuery, QueryId
from anabranch_contract.rest.insight import DiffRecord, ReasonsRecord, ShareRecord, SharesRecord
from anabranch_planner.cost.footprint import (
    Footprint,
    FootprintError,
    footprint_of,
    from_json,
    to_json,
)
from anabranch_planner.cost.steps import trails
from anabranch_planner.explain.diff import diff, diff_document
from anabranch_planner.plans.backfill import Backfill, from_document
from anabranch_planner.plans.hot_keys import read_hot
from anabranch_planner.plans.reasons import reasons, reasons_document
from anabranch_planner.plans.shares import (
    costs_by_owner,
    game,
    shares,
)
from anabranch_service.planning.epoch import Planned, Task
from anabranch_service.planning.model import cost_model, substreams_in
from anabranch_service.planning.widths import relation_widths
from anabranch_service.registry.records import EpochRecord

_LOG = structlog.get_logger(__name__)

#: Intermediate results that are compared with doing without them: each takes a walk through the
#: whole plan.
MAX_KEPT_REASONS = 50


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of an answer: queries with shares, entries of each list of a diff, reasons."""

    shares: int | None
    changes: int | None
    reasons: int | None


#: Why an epoch has no comparison yet.
LATER = (
    "costs apart, differences and reasons are worked out after publication; those of an epoch that "
    "another follows soon are left out"
)

FULL = Limits(shares=None, changes=None, reasons=None)
#: Also what an epoch's record keeps.
SUMMARY = Limits(shares=200, changes=25, reasons=25)


@dataclass(frozen=True, slots=True)
class Running:
    """A published epoch to compare with.

    Attributes:
        queries: those of it that can still be read.
    """

    record: EpochRecord
    queries: tuple[JoinQuery, ...]


@dataclass(frozen=True, slots=True)
class Insight:
    """The explanation of a plan; None where a part failed, and shares that are not worked out."""

    footprint: dict[str, object] | None
    shares: SharesRecord | None
    diff: DiffRecord | None
    diff_reason: str
    reasons: ReasonsRecord | None


def explain_choice(
    planned: Planned,
    task: Task,
    running: Running | None,
    limits: Limits = SUMMARY,
) -> Insight:
    """Shares, differences and reasons of a plan. Never raises; what fails is left out.

    Args:
        running: the epoch to compare with; None: there is none yet.
    """
    plan, queries = planned.plan, planned.queries
    marks = share = why = found = None
    reason = "no epoch has been published yet"
    try:
        walked = trails(plan, queries)
        marks = to_json(footprint_of(plan, walked))
        played = game(plan, queries, walked)
        alone, note = _alone(planned)
        ranked = sorted(shares(plan, queries, alone, played), key=lambda s: (-s.shapley, s.query))
        share = SharesRecord(
            queries=tuple(ShareRecord(**asdict(s)) for s in ranked[: limits.shares]),
            omitted=max(len(ranked) - (limits.shares or len(ranked)), 0),
            note=note,
        )
        model = cost_model(task, queries, task.options.parallelism, plan.substreams)
        why = ReasonsRecord.model_validate(
            reasons_document(
                reasons(
                    plan, queries, model, at_most=MAX_KEPT_REASONS, found=walked, played=played
                ),
                at_most=limits.reasons,
            )
        )
        if running is not None:
            found, reason = _compare(planned, task, running, limits)
    except Exception as cause:  # noqa: BLE001 - an explanation is not worth a plan
        _LOG.error("a plan can't be explained", error=repr(cause), exc_info=cause)
        reason = f"the explanation failed: {cause!r}"
        share = share or SharesRecord.missing(reason)
    return Insight(marks, share, found, reason, why)


def unexplained(planned: Planned) -> Insight:
    """A plan's steps and stores only: the rest is worked out once it has been published."""
    return Insight(to_json(planned.footprint), None, None, LATER, None)


def rewired_from(running: Running | None) -> Footprint | None:
    """Steps and stores that a new plan can keep or rewire; None where they are not known."""
    if running is None or running.record.footprint is None:
        return None
    try:
        return from_json(running.record.footprint)
    except FootprintError as cause:
        _LOG.warning("switching is not charged", epoch=running.record.epoch, error=str(cause))
        return None


def decided_in(running: Running | None) -> tuple[Backfill, ...]:
    """A published epoch's decisions on the past of its intermediate results; none where an older
    version published it.
    """
    if running is None:
        return ()
    return tuple(from_document(doc) for doc in running.record.explain.get("backfill", ()))


def dealt_in(running: Running | None) -> dict[str, tuple[HotValue, ...]]:
    """The values of which a published epoch deals new rows to several hosts, by store."""
    return {} if running is None else read_hot(running.record.explain.get("hot_keys"))


def told_apart_in(running: Running | None) -> tuple[Substreams, ...]:
    """How a published epoch tells the tuples of starts apart."""
    return () if running is None else substreams_in(running.record.explain)


def _compare(
    planned: Planned,
    task: Task,
    running: Running,
    limits: Limits,
) -> tuple[DiffRecord | None, str]:
    record = running.record
    if record.footprint is None:
        return None, (
            f"steps and stores of epoch {record.epoch} are not known: its explanation failed, as "
            "the service's log says"
        )
    try:
        before = from_json(record.footprint)
    except FootprintError as cause:
        return None, f"the record of epoch {record.epoch} can't be compared with: {cause}"
    queries = planned.queries
    found = diff(
        before,
        planned.plan,
        queries,
        cost_model(task, queries, task.options.parallelism, planned.plan.substreams),
        before_queries=running.queries,
        before_model=cost_model(
            task, running.queries, record.parallelism, substreams_in(record.explain)
        ),
        widths=relation_widths((*queries, *running.queries), task.streams, task.widths),
    )
    document = {**diff_document(found, at_most=limits.changes), "epoch": record.epoch}
    return DiffRecord.model_validate(document), ""


def _alone(planned: Planned) -> tuple[dict[QueryId, float] | None, str]:
    """The cost of each query alone, from the plan that was made for comparison anyway."""
    plan = planned.individual
    if plan is None:
        return None, "no query was planned alone, so standalone and proportional are unknown"
    note = ""
    if plan.gap > 0:
        note = f"standalone is not proven optimal for every query (gap {plan.gap:.2%})"
    return costs_by_owner(plan, planned.queries), note
