"""One request for a plan, which the epoch loop, dry runs and explanations make alike."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import structlog

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.plans.plan import Formulation
from anabranch_contract.protocol.samples import StreamSample
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_planner.cost.sampling import estimate
from anabranch_planner.cost.statistics import Statistics
from anabranch_service.planning.epoch import Planned, Task, finite, plan_queries, problem_of
from anabranch_service.planning.what_if import (
    SUMMARY,
    Insight,
    Limits,
    Running,
    decided_in,
    explain_choice,
    rewired_from,
)
from anabranch_service.registry.normalise import parse_record
from anabranch_service.registry.records import PlanningRecord, ProblemRecord, QueryRecord

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class PlanningRequest:
    """Everything that a plan, and what is said about it, follow from.

    Attributes:
        queries: those to plan.
        streams: every usable stream.
        statistics: what was measured, or is to be assumed.
        statistics_epoch: the epoch in which it was measured; None: nothing was.
        samples: stream -> its newest sample; the shares of relations are estimated from them.
        seconds: time limit of one solve; 0: what is found without solving anything.
        running: the published epoch that the plan is compared with and charged for changing.
        rejected: queries that can't be parsed, and why.
        epoch: the epoch to plan for.
        sinks: query id -> where its results go.
        formulation: how the joint plan is solved.
        widths: relation or stream -> bytes per tuple, instead of what the columns' types say.
        limits: how much is said about the plan.
    """

    queries: tuple[JoinQuery, ...]
    streams: Mapping[str, Stream]
    statistics: Statistics
    statistics_epoch: int | None
    samples: Mapping[str, StreamSample]
    options: PlanningRecord
    seconds: float
    running: Running | None
    rejected: Mapping[str, ProblemRecord] = field(default_factory=dict)
    epoch: int = 0
    sinks: Mapping[str, SinkSpec] = field(default_factory=dict)
    formulation: Formulation = Formulation.TIGHT
    widths: Mapping[str, float] = field(default_factory=dict)
    limits: Limits = SUMMARY


@dataclass(frozen=True, slots=True)
class PlanningAnswer:
    """A plan, and what is said about it.

    Attributes:
        task: what was planned, with the statistics that samples gave.
        rejected: queries that can't be parsed or planned, and why.
    """

    request: PlanningRequest
    task: Task
    planned: Planned
    insight: Insight
    rejected: dict[str, ProblemRecord]

    def figures(self) -> dict[str, Any]:
        """What an epoch's record and the answer to a dry run have in common, by field."""
        planned, plan, insight = self.planned, self.planned.plan, self.insight
        return {
            "optimizer": plan.optimizer,
            "objective": plan.objective,
            "parallelism": self.request.options.parallelism,
            "queries": tuple(q.id for q in planned.queries),
            "cost": plan.cost,
            "bound": finite(plan.bound),
            "gap": finite(plan.gap),
            "individual_cost": planned.individual_cost,
            "shared_cost": planned.shared_cost,
            "solve_ms": planned.solve_ms,
            "method": plan.method,
            "candidates": plan.candidates,
            "variables": plan.variables,
            "constraints": plan.constraints,
            "statistics_epoch": self.request.statistics_epoch,
            "assumed": planned.assumed,
            "estimated": planned.estimated,
            "fallback": planned.fallback,
            "switching_cost": plan.switching,
            "shares": insight.shares,
            "diff": insight.diff,
            "diff_reason": insight.diff_reason,
            "reasons": insight.reasons,
        }


def answer_request(request: PlanningRequest) -> PlanningAnswer:
    """Plan and explain what is asked for; touches nothing shared, so it can run in a thread."""
    task = Task(
        streams=request.streams,
        statistics=estimate(request.statistics, request.queries, request.samples),
        options=request.options,
        epoch=request.epoch,
        sinks=request.sinks,
        seconds=request.seconds,
        formulation=request.formulation,
        running=rewired_from(request.running),
        widths=request.widths,
        backfills=decided_in(request.running),
    )
    planned = plan_queries(request.queries, task)
    insight = explain_choice(
        planned, task, request.running, limits=request.limits, widths=request.widths
    )
    return PlanningAnswer(request, task, planned, insight, {**request.rejected, **planned.rejected})


def read_queries(
    records: Iterable[QueryRecord], streams: Mapping[str, Stream]
) -> tuple[tuple[JoinQuery, ...], dict[str, ProblemRecord]]:
    """The queries of ``records``, and why those that can't be read can't."""
    queries: list[JoinQuery] = []
    rejected: dict[str, ProblemRecord] = {}
    for record in records:
        try:
            queries.extend(parse_record(record, streams).planned)
        except Exception as cause:  # noqa: BLE001 - the query's owner is told, the others run
            _LOG.warning("query can't be read", query=record.id, error=repr(cause))
            rejected[record.id] = problem_of(cause)
    return tuple(queries), rejected
