"""Joint planning of an epoch's queries; queries that can't be planned are rejected.

A query that can't be planned never affects others: if joint planning fails, each query is planned
alone, failing queries are rejected with a reason, and the others are planned jointly again. If that
fails too, the ``individual`` optimiser plans them without sharing, as the epoch's record says. The
module does not access Redis: a plan depends only on the input, so planning can run in a thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

import structlog

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.plan import HotKeyDealing, LookingAhead, Optimizer, Plan
from anabranch_contract.plans.rows import RowTexts
from anabranch_contract.plans.ruleset import Ruleset
from anabranch_contract.queries.joins import JoinQuery, RelationId
from anabranch_contract.rest.planning.plans import AheadRecord
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_planner.cost.parts import PlanPart
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_planner.explain.explain import explain
from anabranch_planner.explain.substreams import explain_substreams
from anabranch_planner.passes import EpochRequest, Rules, make_rules, optimise
from anabranch_planner.plans.backfill import document
from anabranch_planner.plans.decisions import to_document
from anabranch_planner.plans.hot_keys import hot_document
from anabranch_planner.plans.look_ahead import questions_document
from anabranch_planner.plans.optimise import Options
from anabranch_planner.plans.traffic import traffic
from anabranch_planner.search.demands import Limits, Switching
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.costs import costs_record
from anabranch_service.planning.options import planner_options
from anabranch_service.planning.process.follower import Follower
from anabranch_service.planning.task import PlanTask, cost_model
from anabranch_service.planning.widths import relation_widths
from anabranch_service.registry.records import EpochRecord, Explanation

_LOG = structlog.get_logger(__name__)

#: Reason for the missing explanation of an epoch, as long as it has not been computed.
LATER = (
    "standalone costs, differences and reasons are computed after publication, unless another "
    "epoch is published soon"
)

_UNEXPLAINED = Explanation.missing(LATER).model_copy(update={"shares": None})


@dataclass(frozen=True, slots=True)
class PlannedEpoch:
    """The plan of an epoch, with the rules that tasks execute, and its explanation.

    Attributes:
        task: the input, with statistics estimated from samples.
        queries: the planned queries. ``rejected``: queries that can't be parsed or planned, with
            the reason.
        solve_ms: time of the solve in milliseconds.
        fallback: empty, or why this is not the plan of the chosen optimiser.
        explanation: comparison with other plans, and cost shares; None: not computed.
    """

    task: PlanTask
    plan: Plan
    rules: Rules
    queries: tuple[JoinQuery, ...]
    rejected: Mapping[str, ProblemRecord] = field(default_factory=dict)
    solve_ms: float = 0.0
    fallback: str = ""
    explanation: Explanation | None = None

    @property
    def ruleset(self) -> Ruleset:
        """The ruleset that the runtime's tasks execute."""
        return self.rules.ruleset

    def rejecting(self, others: Mapping[str, ProblemRecord]) -> PlannedEpoch:
        """Return a copy that also rejects the queries ``others``."""
        return replace(self, rejected={**others, **self.rejected})

    def without_rules(self) -> PlannedEpoch:
        """Return a copy without rules, which an explanation does not need."""
        nothing = Ruleset(self.ruleset.epoch, (), (), (), (), (), (), ())
        return replace(self, rules=Rules(nothing, (), ()))

    def figures(self) -> dict[str, Any]:
        """Return cost, bound, search figures and statistics for epoch records and dry runs."""
        plan, known = self.plan, self.task.statistics
        relations = sorted({r.id for q in self.queries for r in q.relations})
        return {
            "optimizer": plan.optimizer,
            "objective": plan.objective,
            "parallelism": self.task.options.parallelism,
            "queries": tuple(q.id for q in self.queries),
            "cost": plan.cost,
            "bound": finite(plan.bound),
            "gap": finite(plan.gap),
            "solve_ms": self.solve_ms,
            "method": plan.method,
            "candidates": plan.candidates,
            "variables": plan.variables,
            "constraints": plan.constraints,
            "statistics_epoch": self.task.statistics_epoch,
            "assumed": tuple(r for r in relations if known.cardinality(r) is None),
            "estimated": {str(name): share for name, share in sorted(known.estimated.items())},
            "ahead": _ahead(known, relations),
            "costs": costs_record(known, self.task.options.objective),
            "fallback": self.fallback,
            "switching_cost": plan.switching,
            **dict(self.explanation or _UNEXPLAINED),
        }

    def shown(self) -> dict[str, Any]:
        """Return the plan as JSON for users (``explain`` of an epoch); it is never parsed again."""
        plan, rules, task = self.plan, self.rules, self.task
        shown = explain(plan, self.queries, rules.parts)
        shown["backfill"] = [document(b) for b in rules.backfills]
        shown["substreams"] = []
        if plan.substreams:
            model = cost_model(task, self.queries, task.options.parallelism, plan.substreams)
            shown["substreams"] = explain_substreams(plan, self.queries, model)
        crossing = _exchanged(rules.ruleset, self.queries, task)
        if crossing is not None:
            shown["exchange"] = crossing
        if rules.ahead:
            shown["look_ahead"] = questions_document(rules.ruleset, rules.ahead)
        if rules.hot is not None and rules.hot.values:
            shown["hot_keys"] = hot_document(rules.hot)
        return shown

    def publish(self, now: datetime, texts: RowTexts | None = None) -> tuple[EpochRecord, str]:
        """Return the epoch's record, published at ``now``, and the text of its ruleset.

        Args:
            texts: encodes the ruleset, with texts of the last one's rows.
        """
        text, digest = dump_ruleset(self.ruleset, texts)
        record = EpochRecord(
            epoch=self.ruleset.epoch,
            published_at=now,
            rejected=dict(self.rejected),
            explain=self.shown(),
            decisions=to_document(self.rules.decisions),
            ruleset_digest=digest,
            explained=self.explanation is not None,
            **self.figures(),
        )
        return record.with_digest(), text


def plan_epoch(task: PlanTask, follower: Follower | None = None) -> PlannedEpoch:
    """Plan the queries of ``task``, without an explanation.

    Args:
        follower: makes the plan incrementally from the previous one; None: plan from scratch.
    """
    task = task.estimated()
    planned = plan_jointly(task.queries, task, follower)
    if follower is not None:
        follower.parts = planned.rules.parts
    return planned.rejecting(task.rejected)


def plan_jointly(
    queries: Sequence[JoinQuery], task: PlanTask, follower: Follower | None = None
) -> PlannedEpoch:
    """Plan ``queries`` jointly, with statistics and settings of ``task``; reject faulty queries.

    If no plan fits into the memory budget, the budget is ignored, and
    :attr:`PlannedEpoch.fallback` says so.

    Args:
        follower: makes the plan incrementally from the previous one; None: plan from scratch.
    """
    try:
        return _plan_jointly(tuple(queries), task, follower)
    except PlannerError as cause:
        if cause.code != "memory-limit":
            raise
        _LOG.warning("memory budget left out", error=str(cause))
        options = task.options.model_copy(update={"memory": None})
        planned = _plan_jointly(tuple(queries), replace(task, options=options), follower)
        fallback = f"planned without the memory budget: {cause.message}"
        return replace(planned, task=task, fallback=fallback)


def _plan_jointly(
    queries: tuple[JoinQuery, ...], task: PlanTask, follower: Follower | None
) -> PlannedEpoch:
    optimizer = task.options.optimizer
    try:
        return _attempt_plan(queries, task, optimizer, follower)
    except Exception as cause:  # noqa: BLE001 - solvers may raise anything; plan sound queries
        _raise_memory_limit(cause)
        _LOG.warning("joint plan failed", error=repr(cause), queries=[q.id for q in queries])
    sound, rejected = _isolate(queries, task)
    try:
        return replace(_attempt_plan(sound, task, optimizer, follower), rejected=rejected)
    except Exception as cause:  # noqa: BLE001 - the fallback is reported in the record
        _raise_memory_limit(cause)
        _LOG.error("joint plan failed again", error=repr(cause))
        fallback = f"{optimizer} failed ({cause!r}); planned individually"
    planned = _attempt_plan(sound, task, Optimizer.INDIVIDUAL)
    return replace(planned, rejected=rejected, fallback=fallback)


def _ahead(statistics: Statistics, relations: Sequence[RelationId]) -> AheadRecord | None:
    """Return the forecast arrivals of the next epoch for ``relations``; None without a forecast."""
    coming = statistics.ahead
    if coming is None:
        return None
    arrivals = {str(r): coming.arrivals[r] for r in relations if r in coming.arrivals}
    return AheadRecord(period=coming.length, arrivals=arrivals, periods=coming.periods)


def _raise_memory_limit(cause: Exception) -> None:
    if isinstance(cause, PlannerError) and cause.code == "memory-limit":
        raise cause


def dump_ruleset(ruleset: Ruleset, texts: RowTexts | None = None) -> tuple[str, str]:
    """Serialise a ruleset; returns the text and its digest."""
    text = wire.dumps(ruleset) if texts is None else texts.rows(ruleset).text()
    return text, wire.digest(text)


def finite(number: float) -> float | None:
    """Return ``number``, or None if it is infinite or not a number, which JSON can't express."""
    return number if math.isfinite(number) else None


def problem_of(cause: Exception) -> ProblemRecord:
    """Return the reason for a query's rejection, as shown to its owner."""
    if isinstance(cause, PlannerError):
        return ProblemRecord.of(cause, message=cause.detail)
    return ProblemRecord(
        code="planner-failed",
        message=f"the planner failed on this query: {cause!r}",
        remedy="see the service's log; the other queries are not affected",
    )


def _solve(
    queries: Sequence[JoinQuery], task: PlanTask, optimizer: Optimizer, follower: Follower | None
) -> Plan:
    if not queries:
        empty: tuple[()] = ()
        objective = task.options.objective
        return Plan(optimizer, objective, empty, empty, empty, empty, 0.0, 0.0, 0.0, "empty")
    make = optimise if follower is None else follower.make
    return make(queries, task.statistics, options_of(queries, task, optimizer))


def options_of(queries: Sequence[JoinQuery], task: PlanTask, optimizer: Optimizer) -> Options:
    """Return the planner's options for ``queries``; the time limit of the search begins now."""
    decided = task.decisions
    return replace(
        planner_options(task.options, Deadline(time.monotonic, seconds=task.seconds)),
        optimizer=optimizer,
        formulation=task.formulation,
        told_apart=() if decided is None else decided.substreams,
        limits=_limits(queries, task),
        switching=_switching(task),
    )


def _limits(queries: Sequence[JoinQuery], task: PlanTask) -> Limits | None:
    # Without intermediate results no limit is set: limits prevent incremental planning.
    options, most = task.options, task.options.intermediate_results or None
    if options.memory is None and options.copies is None and most is None:
        return None
    widths = relation_widths(queries, task.streams, task.widths)
    return Limits(options.memory, options.copies, most, dict(widths.items()))


def _switching(task: PlanTask) -> Switching | None:
    if task.decisions is None or task.options.switching == 0:
        return None
    return Switching(task.decisions.footprint, task.options.switching)


def _attempt_plan(
    queries: Sequence[JoinQuery],
    task: PlanTask,
    optimizer: Optimizer,
    follower: Follower | None = None,
) -> PlannedEpoch:
    started = time.perf_counter()
    plan = _solve(queries, task, optimizer, follower)
    solve_ms = (time.perf_counter() - started) * 1000
    before = () if follower is None else follower.parts
    rules = make_rules(plan, epoch_request(queries, task, before))
    return PlannedEpoch(task, plan, rules, tuple(queries), solve_ms=solve_ms)


def epoch_request(
    queries: Sequence[JoinQuery], task: PlanTask, before: tuple[PlanPart, ...] = ()
) -> EpochRequest:
    """Return the input to compile a plan of ``queries``; ``before``: parts of the previous plan."""
    options = task.options
    return EpochRequest(
        queries=queries,
        streams=[task.streams[name] for name in sorted(task.streams)],
        statistics=task.statistics,
        epoch=task.epoch,
        parallelism=options.parallelism,
        sinks=task.sinks,
        freshness=task.freshness,
        past=task.past,
        objective=options.objective,
        backfilling=options.backfill,
        horizon=options.backfill_horizon,
        running=task.decisions,
        before=before,
        look_ahead=options.look_ahead is LookingAhead.AUTO,
        hot_keys=options.hot_keys is HotKeyDealing.AUTO,
    )


def _isolate(
    queries: Sequence[JoinQuery], task: PlanTask
) -> tuple[tuple[JoinQuery, ...], dict[str, ProblemRecord]]:
    """Plan each query alone; returns the plannable queries, and the problems of the others."""
    sound: list[JoinQuery] = []
    rejected: dict[str, ProblemRecord] = {}
    for query in queries:
        try:
            _attempt_plan([query], task, task.options.optimizer)
            sound.append(query)
        except Exception as cause:  # noqa: BLE001 - reported to the query's owner
            _LOG.warning("query can't be planned", query=query.id, error=repr(cause))
            rejected[query.id] = problem_of(cause)
    return tuple(sound), rejected


def _exchanged(
    ruleset: Ruleset, queries: Sequence[JoinQuery], task: PlanTask
) -> dict[str, Any] | None:
    """Return the number of hosts, and expected tuples and bytes sent between them per edge and
    batch.

    Returns:
        None with a single host, or before any measurement.
    """
    exchange = task.statistics.exchange
    if exchange is None or exchange.hosts < 2 or not task.batches:
        return None
    model = cost_model(task, queries, task.options.parallelism, ruleset.substreams)
    coming = task.statistics.ahead
    batches = task.batches * (1.0 if coming is None else coming.length)
    found = traffic(ruleset, queries, model, exchange)
    return {
        "hosts": exchange.hosts,
        "edges": {
            edge: {"tuples": one.tuples / batches, "bytes": one.bytes / batches}
            for edge, one in sorted(found.items())
        },
    }
