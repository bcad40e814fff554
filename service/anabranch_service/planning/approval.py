"""Manual approval: plans with changes are *held* until an operator approves them. Pure functions.

A plan with other queries, probe orders, store copies or partitions than the running one
(:func:`~anabranch_planner.replan.remaining.choices`) is held, and the running plan continues
without ended queries. Properties of streams and sinks need no approval: every epoch has the
current ones.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from anabranch_contract import codec
from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.plan import Plan
from anabranch_contract.plans.ruleset import Ruleset, digest
from anabranch_contract.queries.outer_joins import registered
from anabranch_planner.cost.parts import divide
from anabranch_planner.cost.validate import with_costs
from anabranch_planner.passes import Decided, ask_ahead, compile_rules, deal_hot_keys
from anabranch_planner.plans.backfill import BackfillDecision
from anabranch_planner.replan.remaining import choices, plan_of_remaining
from anabranch_service.planning.epoch import PlannedEpoch, epoch_request, plan_jointly
from anabranch_service.planning.request import Registered, read_queries
from anabranch_service.planning.task import RunningEpoch, cost_model
from anabranch_service.planning.what_if.explanation import explained
from anabranch_service.registry.publishing.approvals import Approvals, HeldPlan
from anabranch_service.registry.records import EpochRecord, QueryRecord
from anabranch_service.registry.statements import NormalForms

NOT_PUBLISHED = (
    "the plan that was approved has not been published: queries, streams or settings changed first"
)


@dataclass(frozen=True, slots=True)
class KeptPlan:
    """A published or held plan: the record of its epoch and its ruleset as JSON text."""

    record: EpochRecord
    text: str

    def ruleset(self) -> Ruleset:
        """Return the plan's ruleset."""
        return wire.loads(self.text)


@dataclass(frozen=True, slots=True)
class Weighed:
    """Outcome of :func:`weigh`: the plan to publish, and the plan to hold.

    Attributes:
        planned: the plan to publish.
        held: the plan to hold, or None. ``record``, ``text``: its epoch record and ruleset.
        approved: whether ``planned`` is the approved plan.
        forget: whether to delete refusals of earlier plans, which were for other queries,
            streams or settings.
    """

    planned: PlannedEpoch
    held: HeldPlan | None = None
    record: EpochRecord | None = None
    text: str = ""
    approved: bool = False
    forget: bool = False


def weigh(
    found: Registered,
    proposed: PlannedEpoch,
    running: KeptPlan | None,
    seen: Approvals,
    approved: KeptPlan | None,
    forms: NormalForms,
    now: datetime,
) -> Weighed:
    """Choose the plan to publish, and the plan to hold, under manual approval.

    Args:
        proposed: the new plan, of all queries to run.
        running: the newest published plan; None: none is published.
        approved: the held plan if an operator has approved it, else None.
    """
    basis = _basis(proposed)
    forget = seen.refused is not None and seen.refused.basis != basis
    note = "" if seen.held is None else seen.held.note
    if approved is not None and seen.held is not None:
        if seen.held.basis == basis:
            members = _records(found.queries, approved.record)
            planned = _carried(members, proposed, approved, forms, "as approved")
            return Weighed(planned, approved=True, forget=forget)
        note = NOT_PUBLISHED
    going = [] if running is None else _records(found.going_on, running.record)
    planned = _carried(going, proposed, running, forms, "as before, by approval")
    if _does(planned) == _does(proposed):
        return Weighed(proposed, forget=forget)
    version = digest(json.dumps([basis, _does(proposed)], sort_keys=True))
    if seen.refuses(version, basis):
        return Weighed(planned)
    record, text = proposed.publish(now)
    there = {registered(query.id) for query in planned.queries}
    waiting = {registered(query.id) for query in proposed.queries} - there
    held = HeldPlan(
        digest=version,
        basis=basis,
        since=now if seen.held is None else seen.held.since,
        proposed_at=now,
        epoch=record.epoch,
        waiting=tuple(sorted(waiting)),
        note=note,
    )
    return Weighed(planned, held, record, text, forget=forget)


def _basis(planned: PlannedEpoch) -> str:
    """Return the digest of a held plan's input: plannable queries, streams and settings."""
    queries = sorted(query.id for query in planned.queries)
    streams = planned.task.streams
    known = codec.dumps([streams[name] for name in sorted(streams)])
    options = planned.task.options.model_dump_json()
    return digest(json.dumps([queries, known, options]))


def _does(planned: PlannedEpoch) -> object:
    queries = sorted(query.id for query in planned.queries)
    partitions = planned.task.options.parallelism if planned.plan.copies else 0
    return [choices(planned.plan), queries, partitions]


def _records(records: Sequence[QueryRecord], epoch: EpochRecord) -> list[QueryRecord]:
    """Return the ``records`` of the queries that ``epoch`` includes."""
    names = set(map(registered, epoch.queries))
    return [record for record in records if record.id in names]


def _carried(
    members: Sequence[QueryRecord],
    proposed: PlannedEpoch,
    kept: KeptPlan | None,
    forms: NormalForms,
    method: str,
) -> PlannedEpoch:
    """Return the plan ``kept``, restricted to the queries ``members``, under new statistics."""
    task, options = proposed.task, proposed.task.options
    if kept is not None:
        given = ("optimizer", "objective", "parallelism")
        options = options.model_copy(update={n: getattr(kept.record, n) for n in given})
    queries, unread = read_queries(members, task.streams, forms)
    task = replace(task, queries=queries, options=options).on_terms_of(members).estimated()
    there = {registered(query.id) for query in queries}
    rejected = {n: p for n, p in {**proposed.rejected, **unread}.items() if n not in there}
    if kept is None or not queries:
        return explained(replace(plan_jointly((), task), rejected=rejected))
    record = kept.record
    plan = plan_of_remaining(kept.ruleset(), queries, record.optimizer, record.objective)
    plan = with_costs(
        plan, queries, cost_model(task, queries, options.parallelism, plan.substreams)
    )
    # No plan search has been made, so the cost has no lower bound.
    plan = replace(plan, method=method, bound=-math.inf, gap=math.inf)
    parts = divide(plan, queries)
    for part in parts:
        part.validate()
    decided = Decided(plan, parts, _decided(plan, record))
    terms = epoch_request(queries, task)
    rules = deal_hot_keys(ask_ahead(compile_rules(decided, terms), terms), terms)
    return explained(PlannedEpoch(task, plan, rules, queries, rejected))


def _decided(plan: Plan, record: EpochRecord) -> tuple[BackfillDecision, ...]:
    """Return the backfill decisions of ``record`` that still apply to ``plan``."""
    earlier = RunningEpoch.of(record, ()).decisions
    kept = {(copy.owner, copy.mir) for copy in plan.copies}
    members = {mir.id: set(mir.members) for mir in plan.mirs}
    return tuple(
        one
        for one in (() if earlier is None else earlier.backfills)
        if (one.owner, one.mir) in kept and set(one.order) == members[one.mir]
    )
