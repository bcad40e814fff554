"""One epoch's plan from the queries that are wanted: joint, with the bad ones set apart.

A query that can't be planned never takes others down. Queries are planned jointly; where that
fails each is tried alone, those that fail alone are rejected with their problem, and the rest
are planned jointly again. Should even that fail, the rest run by the ``individual`` optimiser,
and the record says so. Nothing here reads or writes Redis: a call is a function of its input
(but for the time that is measured), so it can run in a thread.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import structlog

from anabranch_contract.connectors.sinks import SinkSpec
from anabranch_contract.errors import PlannerError
from anabranch_contract.plans import ruleset as wire
from anabranch_contract.plans.plan import Formulation, HotKeyDealing, LookingAhead, Optimizer, Plan
from anabranch_contract.plans.ruleset import HotValue, Ruleset, Substreams
from anabranch_contract.queries.joins import JoinQuery, RelationId, Stream
from anabranch_contract.rest.plans import AheadRecord, CostsRecord, CpuRecord
from anabranch_contract.rest.queries import ProblemRecord
from anabranch_planner.cost.footprint import Footprint
from anabranch_planner.cost.parts import Part, footprint_of_parts
from anabranch_planner.cost.sampling import SampledStatistics
from anabranch_planner.cost.statistics import Statistics
from anabranch_planner.explain.explain import explain
from anabranch_planner.explain.substreams import explain_substreams
from anabranch_planner.passes import (
    EpochRequest,
    Rules,
    make_rules,
    optimise,
    optimise_apart,
)
from anabranch_planner.plans.backfill import Backfill, document
from anabranch_planner.plans.hot_keys import hot_document
from anabranch_planner.plans.look_ahead import questions_document
from anabranch_planner.plans.optimise import Apart, Options, apart_of
from anabranch_planner.search.demands import Limits, Switching
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.planning.costs import costs_record, cpu_record
from anabranch_service.planning.exchanged import exchanged
from anabranch_service.planning.follower import Follower
from anabranch_service.planning.model import cost_model
from anabranch_service.planning.widths import relation_widths
from anabranch_service.registry.records import PlanningRecord

_LOG = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Planned:
    """The outcome of planning one epoch.

    Attributes:
        queries: those that the plan is for.
        individual: the plan of the ``individual`` optimiser on the same input; None: it failed, or
            nothing has been compared.
        shared_cost: the cost of the ``shared`` optimiser's plan; likewise.
        fallback: empty, or why this is not what the chosen optimiser would have given.
        assumed: relations whose cardinality the statistics don't know.
        estimated: relations whose cardinality is their share of a sample -> that share.
        ahead: what is forecast of the next period; None: nothing.
        costs: the constants of the objective ``seconds``; None: tuples are counted.
        footprint: the steps and copies of the plan.
        cpu: CPU seconds of the plan and of ``individual``; None: they are not known, or nothing has
            been compared.
    """

    plan: Plan
    ruleset: Ruleset
    queries: tuple[JoinQuery, ...]
    rejected: dict[str, ProblemRecord]
    individual: Plan | None
    shared_cost: float | None
    solve_ms: float
    fallback: str
    assumed: tuple[str, ...]
    estimated: dict[str, float]
    ahead: AheadRecord | None
    costs: CostsRecord | None
    explain: dict[str, Any]
    footprint: Footprint
    cpu: CpuRecord | None = None

    @property
    def individual_cost(self) -> float | None:
        """The cost of planning each query alone."""
        return None if self.individual is None else finite(self.individual.cost)


@dataclass(frozen=True, slots=True)
class Task:
    """Everything that a plan depends on but the queries.

    Attributes:
        streams: every usable stream.
        seconds: time limit of one solve; 0: only what is found without solving.
        epoch: the epoch to plan for.
        sinks: query id -> where its results go. ``freshness``: query id -> alias -> how old its
            members of results may be (microseconds). ``past``: those that emit the past as well.
        formulation: how the joint plan is solved.
        widths: relation or stream -> bytes per tuple, instead of what the columns' types say.
        running: the running epoch's steps and stores, which the plan is charged for changing.
        backfills: the running epoch's decisions on the past of its intermediate results.
        hot: store -> the values of which the running epoch deals new rows to several hosts.
        told_apart: how the running epoch tells the tuples of starts apart.
        batches: that the history of ``statistics`` has.
    """

    streams: Mapping[str, Stream]
    statistics: Statistics
    options: PlanningRecord
    seconds: float
    epoch: int = 0
    sinks: Mapping[str, SinkSpec] = field(default_factory=dict)
    freshness: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    past: frozenset[str] = frozenset()
    formulation: Formulation = Formulation.TIGHT
    widths: Mapping[str, float] = field(default_factory=dict)
    running: Footprint | None = None
    backfills: tuple[Backfill, ...] = ()
    hot: Mapping[str, tuple[HotValue, ...]] = field(default_factory=dict)
    told_apart: tuple[Substreams, ...] = ()
    batches: int = 0


@dataclass(frozen=True, slots=True)
class Attempt:
    """A plan, its rules, and the milliseconds of the solve."""

    plan: Plan
    rules: Rules
    solve_ms: float


@dataclass(frozen=True, slots=True)
class Joint:
    """A joint plan, without the alternatives that it is compared with.

    Attributes:
        task: with the limits that could be kept.
        queries: those that could be planned. ``rejected``: the others.
        fallback: empty, or why this is not what the chosen optimiser would have given.
    """

    task: Task
    attempt: Attempt
    queries: tuple[JoinQuery, ...]
    rejected: dict[str, ProblemRecord] = field(default_factory=dict)
    fallback: str = ""

    @property
    def plan(self) -> Plan:
        """The plan of ``queries``."""
        return self.attempt.plan


def plan_queries(queries: Sequence[JoinQuery], task: Task) -> Planned:
    """Plan ``queries`` jointly, and alternatives to compare with; see :func:`plan_jointly`."""
    joint = plan_jointly(queries, task)
    return compared(outcome(joint), joint.task)


def compared(planned: Planned, task: Task) -> Planned:
    """``planned`` beside plans that choose for every query by itself.

    Args:
        task: what ``planned`` follows from, with the limits that could be kept.
    """
    apart = _apart(planned.plan, planned.queries, task)
    if apart is None:
        return planned
    return replace(
        planned,
        individual=apart.individual,
        shared_cost=finite(apart.shared.cost),
        cpu=cpu_record(planned.plan, apart.individual, planned.queries, task),
    )


def outcome(joint: Joint) -> Planned:
    """A joint plan with its rules, compared with nothing."""
    plan, chosen, task = joint.plan, joint.queries, joint.task
    rules = joint.attempt.rules
    relations = sorted({r.id for q in chosen for r in q.relations})
    shown = explain(plan, chosen, rules.parts)
    shown["backfill"] = [document(b) for b in rules.backfills]
    shown["substreams"] = []
    if plan.substreams:
        model = cost_model(task, chosen, task.options.parallelism, plan.substreams)
        shown["substreams"] = explain_substreams(plan, chosen, model)
    crossing = exchanged(rules.ruleset, chosen, task)
    if crossing is not None:
        shown["exchange"] = crossing
    if rules.ahead:
        shown["look_ahead"] = questions_document(rules.ruleset, rules.ahead)
    if rules.hot is not None and rules.hot.values:
        shown["hot_keys"] = hot_document(rules.hot)
    return Planned(
        plan=plan,
        ruleset=rules.ruleset,
        queries=chosen,
        rejected=joint.rejected,
        individual=None,
        shared_cost=None,
        solve_ms=joint.attempt.solve_ms,
        fallback=joint.fallback,
        assumed=tuple(r for r in relations if task.statistics.cardinality(r) is None),
        estimated=_estimated(task.statistics),
        ahead=_ahead(task.statistics, relations),
        costs=costs_record(task.statistics, task.options.objective),
        explain=shown,
        footprint=footprint_of_parts(rules.parts),
    )


def plan_jointly(
    queries: Sequence[JoinQuery], task: Task, follower: Follower | None = None
) -> Joint:
    """Plan ``queries`` jointly; a single query never makes it fail.

    No single query is at fault where a memory budget is too small: it is left out then, and
    :attr:`Joint.fallback` says so.

    Args:
        follower: makes the joint plan, and its rules, from those before; None: they are made anew.
    """
    try:
        return _plan_jointly(tuple(queries), task, follower)
    except PlannerError as cause:
        if cause.code != "memory-limit":
            raise
        _LOG.warning("memory budget left out", error=str(cause))
        options = task.options.model_copy(update={"memory": None})
        found = _plan_jointly(tuple(queries), replace(task, options=options), follower)
        return replace(found, fallback=f"planned without the memory budget: {cause.message}")


def _plan_jointly(queries: tuple[JoinQuery, ...], task: Task, follower: Follower | None) -> Joint:
    optimizer = task.options.optimizer
    try:
        return Joint(task, _attempt(queries, task, optimizer, follower), queries)
    except Exception as cause:  # noqa: BLE001 - whatever a solver does, the others are planned
        _raise_budget(cause)
        _LOG.warning("joint plan failed", error=repr(cause), queries=[q.id for q in queries])
    sound, rejected = _isolate(queries, task)
    try:
        return Joint(task, _attempt(sound, task, optimizer, follower), sound, rejected)
    except Exception as cause:  # noqa: BLE001 - the fallback is reported in the record
        _raise_budget(cause)
        _LOG.error("joint plan failed again", error=repr(cause))
        fallback = f"{optimizer} failed ({cause!r}); planned individually"
    return Joint(task, _attempt(sound, task, Optimizer.INDIVIDUAL), sound, rejected, fallback)


def _estimated(statistics: Statistics) -> dict[str, float]:
    shares = statistics.shares if isinstance(statistics, SampledStatistics) else {}
    return {str(name): share for name, share in sorted(shares.items())}


def _ahead(statistics: Statistics, relations: Sequence[RelationId]) -> AheadRecord | None:
    """What is forecast of the ``relations`` that are planned."""
    coming = statistics.ahead()
    if coming is None:
        return None
    arrivals = {str(r): coming.arrivals[r] for r in relations if r in coming.arrivals}
    return AheadRecord(period=coming.length, arrivals=arrivals, periods=coming.periods)


def _raise_budget(cause: Exception) -> None:
    if isinstance(cause, PlannerError) and cause.code == "memory-limit":
        raise cause


def dump_ruleset(ruleset: Ruleset) -> tuple[str, str]:
    """The wire text of a ruleset and its digest."""
    text = wire.dumps(ruleset)
    return text, wire.digest(text)


def finite(number: float) -> float | None:
    """``number``, or None where JSON has no word for it."""
    return number if math.isfinite(number) else None


def problem_of(cause: Exception) -> ProblemRecord:
    """Why a query is rejected, for its owner."""
    if isinstance(cause, PlannerError):
        return ProblemRecord(
            code=cause.code, message=cause.detail, field=cause.field, remedy=cause.remedy
        )
    return ProblemRecord(
        code="planner-failed",
        message=f"the planner failed on this query: {cause!r}",
        remedy="see the service's log; the other queries are not affected",
    )


def _solve(
    queries: Sequence[JoinQuery], task: Task, optimizer: Optimizer, follower: Follower | None
) -> Plan:
    if not queries:
        empty: tuple[()] = ()
        objective = task.options.objective
        return Plan(optimizer, objective, empty, empty, empty, empty, 0.0, 0.0, 0.0, "empty")
    make = optimise if follower is None else follower.make
    return make(queries, task.statistics, _options(queries, task, optimizer))


def _options(queries: Sequence[JoinQuery], task: Task, optimizer: Optimizer) -> Options:
    return Options(
        optimizer=optimizer,
        objective=task.options.objective,
        parallelism=task.options.parallelism,
        formulation=task.formulation,
        solver=task.options.solver,
        mir=task.options.intermediate_results != 0,
        substreams=task.options.substreams,
        told_apart=task.told_apart,
        limits=_limits(queries, task),
        switching=_switching(task),
        deadline=Deadline(time.monotonic, seconds=task.seconds),
    )


def _limits(queries: Sequence[JoinQuery], task: Task) -> Limits | None:
    # Without intermediate results there is nothing to cap: plans can follow those before.
    options, most = task.options, task.options.intermediate_results or None
    if options.memory is None and options.copies is None and most is None:
        return None
    widths = relation_widths(queries, task.streams, task.widths)
    return Limits(options.memory, options.copies, most, dict(widths.items()))


def _switching(task: Task) -> Switching | None:
    if task.running is None or task.options.switching == 0:
        return None
    return Switching(task.running, task.options.switching)


def _attempt(
    queries: Sequence[JoinQuery], task: Task, optimizer: Optimizer, follower: Follower | None = None
) -> Attempt:
    started = time.perf_counter()
    plan = _solve(queries, task, optimizer, follower)
    solve_ms = (time.perf_counter() - started) * 1000
    before = () if follower is None else follower.parts
    return Attempt(plan, make_rules(plan, epoch_request(queries, task, before)), solve_ms)


def epoch_request(
    queries: Sequence[JoinQuery], task: Task, before: tuple[Part, ...] = ()
) -> EpochRequest:
    """The request for the rules of a plan of ``queries``; ``before``: parts of the one before."""
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
        running=task.running,
        earlier=task.backfills,
        before=before,
        look_ahead=options.look_ahead is LookingAhead.AUTO,
        hot_keys=options.hot_keys is HotKeyDealing.AUTO,
        hot=task.hot,
    )


def _isolate(
    queries: Sequence[JoinQuery], task: Task
) -> tuple[tuple[JoinQuery, ...], dict[str, ProblemRecord]]:
    """The queries that can be planned alone, and why the others can't."""
    sound: list[JoinQuery] = []
    rejected: dict[str, ProblemRecord] = {}
    for query in queries:
        try:
            _attempt([query], task, task.options.optimizer)
            sound.append(query)
        except Exception as cause:  # noqa: BLE001 - reported to the query's owner
            _LOG.warning("query can't be planned", query=query.id, error=repr(cause))
            rejected[query.id] = problem_of(cause)
    return tuple(sound), rejected


def _apart(plan: Plan, queries: Sequence[JoinQuery], task: Task) -> Apart | None:
    """What the joint ``plan`` is compared with; None: there is nothing."""
    options = _options(queries, task, plan.optimizer)
    try:
        if not queries:
            return Apart(plan, plan)
        return apart_of(plan, options) or optimise_apart(queries, task.statistics, options)
    except Exception as cause:  # noqa: BLE001 - a comparison is not worth a plan
        _LOG.warning("no cost to compare with", error=repr(cause))
        return None
