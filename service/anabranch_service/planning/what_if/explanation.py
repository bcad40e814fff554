"""Explanation of a plan: cost shares of queries, changes from the running plan, and savings.

It is computed after planning, and limited in size (:class:`.task.ExplanationBounds`). Its failure
never affects the plan.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import asdict, replace

import structlog

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.queries.joins import QueryId
from anabranch_contract.rest.planning.insight import (
    DiffRecord,
    ReasonsRecord,
    ShareRecord,
    SharesRecord,
    TableRecord,
    TablesRecord,
)
from anabranch_planner.cost.model import CostModel
from anabranch_planner.cost.steps import trails
from anabranch_planner.explain.diff import diff, diff_document
from anabranch_planner.passes import optimise_apart
from anabranch_planner.plans.optimise import StandalonePlans, apart_of
from anabranch_planner.plans.reasons import reasons, reasons_document
from anabranch_planner.plans.shares import costs_by_owner, game, shares
from anabranch_planner.plans.tables import tables, tables_document
from anabranch_service.planning.costs import cpu_record
from anabranch_service.planning.epoch import PlannedEpoch, finite, options_of
from anabranch_service.planning.task import cost_model
from anabranch_service.planning.widths import relation_widths
from anabranch_service.registry.records import Explanation

_LOG = structlog.get_logger(__name__)

#: Maximum number of intermediate results whose benefit is explained; each needs a traversal of the
#: whole plan.
MAX_KEPT_REASONS = 50


def explained(planned: PlannedEpoch) -> PlannedEpoch:
    """Return ``planned`` with its explanation; never raises: parts that fail are left out."""
    return replace(planned, explanation=explain_choice(planned, standalone(planned)))


def standalone(planned: PlannedEpoch) -> StandalonePlans | None:
    """Return plans of each query alone, for comparison; None if they can't be made."""
    plan, task = planned.plan, planned.task
    options = options_of(planned.queries, task, plan.optimizer)
    try:
        if not planned.queries:
            return StandalonePlans(plan, plan)
        known = apart_of(plan, options)
        return known or optimise_apart(planned.queries, task.statistics, options)
    except Exception as cause:  # noqa: BLE001 - logged; the plan is valid without a comparison
        _LOG.warning("no cost to compare with", error=repr(cause))
        return None


def explain_choice(planned: PlannedEpoch, apart: StandalonePlans | None) -> Explanation:
    """Compare with ``apart`` (plans of each query alone) and with the running epoch."""
    plan, queries, task = planned.plan, planned.queries, planned.task
    limits = task.limits
    share = why = found = cpu = kept = None
    reason = "no epoch has been published yet"
    try:
        # One model for all prices: it keeps the cardinality of each sub-join.
        model = cost_model(task, queries, task.options.parallelism, plan.substreams)
        if apart is not None:
            cpu = cpu_record(plan, apart.individual, queries, task, model)
        walked = trails(plan, queries)
        played = game(plan, queries, walked)
        alone, note = _alone(planned, apart)
        ranked = sorted(shares(plan, queries, alone, played), key=lambda s: (-s.shapley, s.query))
        share = SharesRecord(
            queries=tuple(ShareRecord(**asdict(s)) for s in ranked[: limits.shares]),
            omitted=max(len(ranked) - (limits.shares or len(ranked)), 0),
            note=note,
        )
        why = ReasonsRecord.model_validate(
            reasons_document(
                reasons(
                    plan, queries, model, at_most=MAX_KEPT_REASONS, found=walked, played=played
                ),
                at_most=limits.reasons,
            )
        )
        kept = _tables(planned, model)
        if task.running is not None:
            found, reason = _compare(planned, model)
    except Exception as cause:  # noqa: BLE001 - logged; the plan is valid without an explanation
        _LOG.error("a plan can't be explained", error=repr(cause), exc_info=cause)
        reason = f"the explanation failed: {cause!r}"
        share = share or SharesRecord.missing(reason)
    return Explanation(
        individual_cost=None if apart is None else finite(apart.individual.cost),
        shared_cost=None if apart is None else finite(apart.shared.cost),
        cpu=cpu,
        shares=share,
        diff=found,
        diff_reason=reason,
        reasons=why,
        tables=kept,
    )


def _tables(planned: PlannedEpoch, model: CostModel) -> TablesRecord:
    """Return the prices of the queries' maintained tables."""
    task, apart, begun = planned.task, dict[str, Hashable](), dict[str, Hashable]()
    for query in planned.queries:
        sink, fresh = task.sinks.get(query.id), task.freshness.get(query.id, {})
        counted = sink is not None and sink.kind is SinkKind.COUNT
        apart[query.id] = query.id if counted else "", tuple(sorted(fresh.items()))
        # Queries with past results end up with the same rows, whenever they began.
        begun[query.id] = "past" if query.id in task.past else task.begun.get(query.id)
    statistics, samples = task.statistics, task.samples
    found = tables(planned.queries, model, statistics, samples=samples, apart=apart, begun=begun)
    return TablesRecord.summed([TableRecord.model_validate(one) for one in tables_document(found)])


def _compare(planned: PlannedEpoch, model: CostModel) -> tuple[DiffRecord | None, str]:
    """Compare the plan, whose cost model is ``model``, with the running epoch."""
    task, queries, running = planned.task, planned.queries, planned.task.running
    assert running is not None  # checked by the caller
    record, before = running.record, running.decisions
    if before is None:
        return None, f"epoch {record.epoch} can't be compared with: {running.problem}"
    if running.queries == queries and record.parallelism == task.options.parallelism:
        before_model = model.divided(before.substreams)
    else:
        before_model = cost_model(task, running.queries, record.parallelism, before.substreams)
    found = diff(
        before.footprint,
        planned.plan,
        queries,
        model,
        before_queries=running.queries,
        before_model=before_model,
        widths=relation_widths((*queries, *running.queries), task.streams, task.widths),
    )
    document = {**diff_document(found, at_most=task.limits.changes), "epoch": record.epoch}
    return DiffRecord.model_validate(document), ""


def _alone(
    planned: PlannedEpoch, apart: StandalonePlans | None
) -> tuple[dict[QueryId, float] | None, str]:
    """Map each query to its cost if it is planned alone, from the plans ``apart``."""
    if apart is None:
        return None, "no query was planned alone, so standalone and proportional are unknown"
    plan, note = apart.individual, ""
    if plan.gap > 0:
        note = f"standalone is not proven optimal for every query (gap {100 * plan.gap:.2f} %)"
    return costs_by_owner(plan, planned.queries), note
