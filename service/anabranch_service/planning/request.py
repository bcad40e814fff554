"""One request for a plan, which the epoch loop, dry runs and explanations make alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.protocol.samples import StreamSample
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_planner.cost.footprint import Footprint
from anabranch_planner.cost.sampling import estimate
from anabranch_planner.cost.statistics import NoStatistics, Statistics
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.costs import newest, timed
from anabranch_service.planning.epoch import (
    Planned,
    Task,
    compared,
    dump_ruleset,
    finite,
    outcome,
    plan_jointly,
    problem_of,
)
from anabranch_service.planning.follower import Follower
from anabranch_service.planning.options import default_planning
from anabranch_service.planning.rates import foresee, read_periods
from anabranch_service.planning.what_if import (
    SUMMARY,
    Insight,
    Limits,
    Running,
    dealt_in,
    decided_in,
    explain_choice,
    rewired_from,
    told_apart_in,
    unexplained,
)
from anabranch_service.planning.widths import with_exchange
from anabranch_service.planning.work import go_on
from anabranch_service.registry.lifecycle import going_on, to_plan
from anabranch_service.registry.records import EpochRecord, Explanation, PlanningRecord, QueryRecord
from anabranch_service.registry.slo import freshness_of
from anabranch_service.registry.statements import NormalForms, usable_streams
from anabranch_service.registry.store import Store
from anabranch_service.settings import Settings

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Registered:
    """Everything registered, measured and published, as of one moment.

    Attributes:
        wanted: the runs of the next epoch. ``replaced``: earlier runs that take the places of
            rejected ones, of each query the newest first.
        going_on: the runs that may go on where nothing new is published.
        running: the epoch to compare with; None: none has been published.
        mode: whose periods are in ``periods``, the documents that rates are forecast from, by the
            newest ``length`` of them.
    """

    queries: list[QueryRecord]
    wanted: list[QueryRecord]
    replaced: list[QueryRecord]
    going_on: list[QueryRecord]
    streams: Mapping[str, StreamRecord]
    options: PlanningRecord
    snapshot: Snapshot | None
    samples: Mapping[str, StreamSample]
    running: EpochRecord | None
    mode: Mode
    periods: Sequence[str]
    length: int

    @property
    def statistics(self) -> Statistics:
        """The newest measurements, without forecasts."""
        return NoStatistics() if self.snapshot is None else self.snapshot


async def read_registered(
    store: Store,
    settings: Settings,
    now: datetime,
    snapshot: Snapshot | None,
    before: int | None = None,
    *,
    foreseen: bool = True,
    running: bool = True,
) -> Registered:
    """Read the input of a plan.

    Args:
        snapshot: the newest statistics.
        before: the epoch that is planned; its predecessor runs. None: the newest one runs.
        foreseen: whether rates are to be forecast, of periods that are read here.
        running: whether to read what runs.
    """
    activations, queries = await store.activations(), await store.queries()
    length = settings.series_periods
    wanted, replaced = to_plan(queries, activations, now)
    return Registered(
        queries=queries,
        wanted=wanted,
        replaced=replaced,
        going_on=going_on(queries, activations, now),
        streams=await store.streams(),
        options=await store.planning() or default_planning(settings),
        snapshot=snapshot,
        samples={} if snapshot is None else await store.samples(),
        running=await running_epoch(store, before) if running else None,
        mode=settings.mode,
        periods=await read_periods(store, settings.mode, snapshot, length) if foreseen else (),
        length=length,
    )


async def running_epoch(store: Store, before: int | None) -> EpochRecord | None:
    """The newest epoch, with the steps and stores of its newest revision."""
    record = await store.newest_epoch(before)
    revisions = [] if record is None else await store.revisions(record.epoch)
    if record is None or not revisions:
        return record
    return record.model_copy(update={"footprint": revisions[-1].footprint})


def read_queries(
    records: Iterable[QueryRecord],
    streams: Mapping[str, Stream],
    forms: NormalForms,
    deadline: Deadline | None = None,
) -> tuple[tuple[JoinQuery, ...], dict[str, ProblemRecord]]:
    """The joins of ``records`` to plan, and why some records can't be read.

    Raises:
        Busy: ``registration-too-slow``, by ``deadline``.
    """
    queries: list[JoinQuery] = []
    rejected: dict[str, ProblemRecord] = {}
    for record in records:
        if deadline is not None:
            go_on(deadline)
        try:
            queries.extend(forms.of(record, streams).planned)
        except Exception as cause:  # noqa: BLE001 - reported to the query's owner, the others run
            _LOG.warning("query can't be read", query=record.id, error=repr(cause))
            rejected[record.id] = problem_of(cause)
    return tuple(queries), rejected


def on_terms_of(records: Sequence[QueryRecord], task: Task) -> Task:
    """``task`` with what rules say of the queries of ``records``: sinks, freshness, their past."""
    return replace(
        task,
        sinks={record.id: record.sink.to_sink() for record in records},
        freshness={r.id: freshness_of(r.slo) for r in records if r.slo.freshness},
        past=frozenset(r.id for r in records if r.emits_past),
    )


@dataclass(frozen=True, slots=True)
class PlanningRequest:
    """Everything that a plan, and its explanation, follow from.

    Attributes:
        queries: those to plan.
        rejected: queries that can't be parsed, and why.
        task: without the figures of ``samples`` and ``running``.
        statistics_epoch: the epoch in which statistics were measured; None: nothing was.
        samples: stream -> its newest sample; the shares of relations are estimated from them.
        running: the published epoch that the plan is compared with and charged for changing.
        limits: how long the explanation may be.
    """

    queries: tuple[JoinQuery, ...]
    rejected: Mapping[str, ProblemRecord]
    task: Task
    statistics_epoch: int | None
    samples: Mapping[str, StreamSample]
    running: Running | None
    limits: Limits = SUMMARY


@dataclass(frozen=True, slots=True)
class PlanningAnswer:
    """A plan and its explanation.

    Attributes:
        task: with the figures of samples and of the running epoch.
        rejected: queries that can't be parsed or planned, and why.
        explained: whether it is compared and explained (:func:`explained`).
    """

    request: PlanningRequest
    task: Task
    planned: Planned
    insight: Insight
    rejected: dict[str, ProblemRecord]
    explained: bool = True

    def without_rules(self) -> PlanningAnswer:
        """The answer without what only its publication needs."""
        rules = Ruleset(self.planned.ruleset.epoch, (), (), (), (), (), (), ())
        nothing = Footprint(frozenset(), frozenset())
        planned = replace(self.planned, ruleset=rules, explain={}, footprint=nothing)
        return replace(self, planned=planned)

    def figures(self) -> dict[str, Any]:
        """The fields that an epoch's record and the answer to a dry run have in common."""
        planned, plan = self.planned, self.planned.plan
        return {
            "optimizer": plan.optimizer,
            "objective": plan.objective,
            "parallelism": self.task.options.parallelism,
            "queries": tuple(q.id for q in planned.queries),
            "cost": plan.cost,
            "bound": finite(plan.bound),
            "gap": finite(plan.gap),
            "solve_ms": planned.solve_ms,
            "method": plan.method,
            "candidates": plan.candidates,
            "variables": plan.variables,
            "constraints": plan.constraints,
            "statistics_epoch": self.request.statistics_epoch,
            "assumed": planned.assumed,
            "estimated": planned.estimated,
            "ahead": planned.ahead,
            "costs": planned.costs,
            "fallback": planned.fallback,
            "switching_cost": plan.switching,
            **dict(self.explanation()),
        }

    def explanation(self) -> Explanation:
        """What may be worked out after the plan is published."""
        planned, insight = self.planned, self.insight
        return Explanation(
            individual_cost=planned.individual_cost,
            shared_cost=planned.shared_cost,
            cpu=planned.cpu,
            shares=insight.shares,
            diff=insight.diff,
            diff_reason=insight.diff_reason,
            reasons=insight.reasons,
        )


@dataclass(frozen=True, slots=True)
class Prepared:
    """An epoch that can be published.

    Attributes:
        text: of its ruleset.
        answer: what it follows from.
    """

    record: EpochRecord
    text: str
    answer: PlanningAnswer

    @classmethod
    def of(cls, answer: PlanningAnswer, now: datetime) -> Prepared:
        """The epoch of a plan that is published ``now``."""
        planned = answer.planned
        text, digest = dump_ruleset(planned.ruleset)
        record = EpochRecord(
            epoch=planned.ruleset.epoch,
            published_at=now,
            rejected=answer.rejected,
            explain=planned.explain,
            ruleset_digest=digest,
            footprint=answer.insight.footprint,
            explained=answer.explained,
            **answer.figures(),
        )
        return cls(record.with_digest(), text, answer)

    @property
    def rejected(self) -> Mapping[str, ProblemRecord]:
        """The queries that can't be planned, and why."""
        return self.record.rejected

    def rejecting(self, others: Mapping[str, ProblemRecord]) -> Prepared:
        """This one, with ``others`` among the queries that it rejects."""
        rejected = {**others, **self.record.rejected}
        record = self.record.model_copy(update={"rejected": rejected})
        return Prepared(record, self.text, replace(self.answer, rejected=rejected))


def plan_request(found: Registered, forms: NormalForms, seconds: float) -> PlanningRequest:
    """The request for a plan of all that is wanted, in ``seconds`` per solve."""
    streams = usable_streams(found.streams.values())
    queries, rejected = read_queries(found.wanted, streams, forms)
    statistics = timed(
        foresee(found.snapshot, found.periods, found.mode, found.length),
        found.snapshot,
        newest(found.periods, found.options, found.mode),
        found.options,
    )
    if found.snapshot is not None:
        hosts, locality = found.snapshot.on_hosts, found.snapshot.locality
        statistics = with_exchange(statistics, hosts, queries, streams, found.samples, locality)
    running = None
    if found.running is not None:
        members = set(found.running.queries)
        known = [query for query in found.queries if query.id in members]
        running = Running(found.running, read_queries(known, streams, forms)[0])
    return PlanningRequest(
        queries=queries,
        rejected=rejected,
        task=Task(streams, statistics, found.options, seconds, batches=batches_of(found.snapshot)),
        statistics_epoch=None if found.snapshot is None else found.snapshot.epoch,
        samples=found.samples,
        running=running,
    )


def batches_of(snapshot: Snapshot | None) -> int:
    """How many batches the history has that statistics count over."""
    return 0 if snapshot is None else snapshot.total_batches


def answer_request(request: PlanningRequest) -> PlanningAnswer:
    """Plan and explain ``request``; changes nothing shared, so it can run in a thread."""
    return explained(plan_only(request))


def plan_only(request: PlanningRequest, follower: Follower | None = None) -> PlanningAnswer:
    """Plan ``request``, and leave the explanation to :func:`explained`.

    Args:
        follower: makes the plan from the one before; None: it is made anew.
    """
    task = replace(
        request.task,
        statistics=estimate(request.task.statistics, request.queries, request.samples),
        running=rewired_from(request.running),
        backfills=decided_in(request.running),
        hot=dealt_in(request.running),
        told_apart=told_apart_in(request.running),
    )
    joint = plan_jointly(request.queries, task, follower)
    planned = outcome(joint)
    if follower is not None:
        follower.parts = joint.attempt.rules.parts
        task = replace(task, statistics=follower.taken or task.statistics)
    rejected = {**request.rejected, **planned.rejected}
    return PlanningAnswer(request, task, planned, unexplained(planned), rejected, explained=False)


def explained(answer: PlanningAnswer) -> PlanningAnswer:
    """``answer`` with plans to compare with, who costs what, what changes, and why."""
    planned = compared(answer.planned, answer.task)
    request = answer.request
    insight = explain_choice(planned, answer.task, request.running, request.limits)
    return replace(answer, planned=planned, insight=insight, explained=True)
