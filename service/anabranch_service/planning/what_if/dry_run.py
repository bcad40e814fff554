"""Dry runs: plan the registered queries, with some added and some removed, without publishing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

import structlog

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Formulation, Plan
from anabranch_contract.plans.rations import Overload
from anabranch_contract.protocol.progress import Progress, Rationing
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.joins import JoinQuery, Stream, StreamName
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.planning.plans import (
    CostRangeOut,
    Detail,
    DryRunIn,
    DryRunOut,
    EffectOut,
    EffectsOut,
)
from anabranch_contract.rest.queries import QueryIn
from anabranch_contract.rest.streams import RetentionIn
from anabranch_planner.allocation.effects import expected_completeness, rationed_forest
from anabranch_planner.allocation.fair import CLOSE
from anabranch_planner.cost.uncertainty import cost_range
from anabranch_planner.explain.explain import explain_text
from anabranch_planner.solvers.deadline import Deadline
from anabranch_service.durations import read_duration
from anabranch_service.errors import InvalidInput, NotFound
from anabranch_service.planning.epoch import PlannedEpoch, plan_epoch, plan_jointly
from anabranch_service.planning.options import changed
from anabranch_service.planning.rations import may_ration
from anabranch_service.planning.request import plan_task, read_queries, read_registered
from anabranch_service.planning.task import FULL, SUMMARY, cost_model
from anabranch_service.planning.what_if.assumptions import Names, assume
from anabranch_service.planning.what_if.explanation import explained
from anabranch_service.planning.work import ThreadPools, go_on
from anabranch_service.registry.derived import Queries, with_queries
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.sizes import read_checked
from anabranch_service.registry.slo import check_slo
from anabranch_service.registry.statements import NormalForms, usable_streams
from anabranch_service.registry.store import Store
from anabranch_service.settings import ServiceSettings

_LOG = structlog.get_logger(__name__)


async def plan_dry_run(
    body: DryRunIn, store: Store, work: ThreadPools, settings: ServiceSettings, now: datetime
) -> DryRunOut:
    """Plan the registered queries as ``body`` changes them. Stores nothing."""
    found = await read_registered(store, settings, now, await store.last_snapshot())
    known = {query_of(q.id) for q in found.queries} | {q.id for q in found.queries}
    for name in body.drop:
        if name not in known:
            raise NotFound(
                "unknown-query",
                f"there is no query {name!r} to drop",
                field="drop",
                remedy="GET /v1/queries lists all queries",
            )
    options = changed(found.options, body)
    if body.formulation is Formulation.PAPER:
        # The paper's formulation has no penalty for changes of the running plan, and no limits,
        # but intermediate results can be excluded.
        unlimited = {"switching": 0.0, "memory": None, "copies": None}
        if options.intermediate_results:
            unlimited["intermediate_results"] = None
        options = options.model_copy(update=unlimited)
    limit = settings.planning.solve_seconds
    before = found.wanted
    wanted = [q for q in before if not {q.id, query_of(q.id)} & set(body.drop)]
    found = replace(found, wanted=wanted, options=options)
    streams = _assumed(found.streams, body.retention)
    # Queries to add need a deadline: registered ones have passed the limits of registrations.
    task = await work.read(plan_task, found, store.forms, limit)
    if body.retention:
        queries, rejected = await work.read(read_queries, wanted, streams, NormalForms())
        task = replace(task, streams=streams, queries=queries, rejected=rejected)
    others = await store.known_queries(now, settings.mode)
    async with work.limited() as deadline:
        taken = {query_of(q.id) for q in wanted}
        new, read = await work.read(_added, body, taken, task.streams, settings, deadline, others)
    task = replace(task, streams=read)
    queries = (*task.queries, *new)
    names = Names(queries)
    for name in body.widths:
        names.require(name, f"widths.{name}")
    task = replace(
        task,
        queries=queries,
        limits=SUMMARY if body.detail == "summary" else FULL,
        statistics=assume(task.statistics, names, body.statistics, body.distinct, body.selectivity),
        seconds=limit if body.deadline is None else min(body.deadline, limit),
        formulation=body.formulation,
        widths=body.widths,
    )
    standing = None
    if (body.add or body.drop) and may_ration(options, found.mode):
        registered = await work.read(read_queries, before, task.streams, store.forms)
        standing = _standing(before, registered[0], body, await store.progress())

    def answer() -> DryRunOut:
        planned = explained(plan_epoch(task))
        effects = None if standing is None else _effects(planned, standing)
        return dry_run_out(planned, planned.shown(), body.detail, effects)

    return await work.plan(answer)


@dataclass(frozen=True, slots=True)
class _Standing:
    """Current load shedding, for comparison with a dry run.

    Attributes:
        queries: the joins of registered queries.
        priorities, floors: query -> priority and required completeness, also of added queries.
        rationing: the runtime's report on load shedding.
    """

    queries: Sequence[JoinQuery]
    priorities: Mapping[str, int]
    floors: Mapping[str, float]
    rationing: Rationing


def _standing(
    registered: Sequence[QueryRecord],
    queries: Sequence[JoinQuery],
    body: DryRunIn,
    progress: Progress | None,
) -> _Standing | None:
    """Return the current load shedding; None if the runtime's policy is to wait."""
    if progress is None or progress.rationing.policy is Overload.WAIT:
        return None
    known: dict[str, QueryRecord | QueryIn] = {record.id: record for record in registered}
    known.update((_name(given, at), given) for at, given in enumerate(body.add))
    return _Standing(
        queries,
        {name: query.priority for name, query in known.items()},
        {n: q.slo.completeness for n, q in known.items() if q.slo.completeness is not None},
        progress.rationing,
    )


def _effects(planned: PlannedEpoch, standing: _Standing) -> EffectsOut | None:
    """Return effects of the plan on the completeness of queries; None if their computation fails,
    which must not fail the dry run."""
    try:
        return _compared(planned, standing)
    except Exception as cause:  # noqa: BLE001 - logged
        _LOG.error("effects of a dry run are unknown", error=repr(cause), exc_info=cause)
        return None


def _compared(planned: PlannedEpoch, standing: _Standing) -> EffectsOut:
    task, options = planned.task, planned.task.options
    joint = plan_jointly(standing.queries, task)
    plans = ((joint.plan, joint.queries), (planned.plan, planned.queries))
    before, after = (
        rationed_forest(
            plan,
            queries,
            cost_model(task, queries, options.parallelism, plan.substreams),
            {StreamName(name): stream for name, stream in task.streams.items()},
        )
        for plan, queries in plans
    )
    budget = min(standing.rationing.budget, 1.0)
    left = budget_after(standing.rationing, options.capacity, before.forest.full, after.forest.full)
    kept, then = (
        expected_completeness(
            rationed, options.allocation, standing.priorities, standing.floors, share
        )
        for rationed, share in ((before, budget), (after, left))
    )
    found = [
        EffectOut(
            query=query,
            before=kept.get(query),
            after=then.get(query),
            floor=floor,
            floor_broken=floor is not None and then.get(query, 1.0) < floor - CLOSE,
        )
        for query in sorted({*kept, *then})
        for floor in [standing.floors.get(query)]
    ]
    found.sort(key=lambda one: _gain(one.before, one.after))
    shown = found[: task.limits.shares]
    return EffectsOut(
        budget=budget, budget_after=left, queries=shown, omitted=len(found) - len(shown)
    )


def _gain(before: float | None, after: float | None) -> float:
    return 0.0 if before is None or after is None else after - before


def budget_after(
    rationing: Rationing, capacity: float | None, full_before: float, full_after: float
) -> float:
    """Return the budget under a new plan: the available share of its rationed probes' CPU time.

    The available CPU time is the same as under the running plan. While no result is withheld, it
    is the time that probes take plus the spare capacity.

    Args:
        capacity: budget in the settings; None: it follows from the load.
        full_before, full_after: estimated cost of the running and the new plan without rationing.

    >>> budget_after(Rationing(budget=0.5), None, 4.0, 8.0)
    0.25
    >>> budget_after(Rationing(budget=1.0, needed=0.8), None, 4.0, 8.0)
    0.625
    """
    if capacity is not None:
        return capacity
    if rationing.budget < 1:
        time = rationing.budget * full_before
    elif rationing.needed > 0:
        time = full_before / min(rationing.needed, 1.0)
    else:
        return 1.0
    return min(time / full_after, 1.0) if full_after else 1.0


def dry_run_out(
    planned: PlannedEpoch, shown: dict[str, Any], detail: Detail, effects: EffectsOut | None = None
) -> DryRunOut:
    """Make the body of the answer to a dry run; ``shown``: the plan as JSON."""
    task, options, whole = planned.task, planned.task.options, detail == "full"
    spread = cost_range(
        planned.plan, planned.queries, task.statistics, parallelism=options.parallelism
    )
    return DryRunOut.of(
        options,
        **planned.figures(),
        cost_range=CostRangeOut(low=spread.low, high=spread.high),
        rejected=dict(planned.rejected),
        explain=shown if whole else {"totals": shown["totals"]},
        text=explain_text(planned.plan, planned.queries) + _tables_text(planned)
        if whole
        else _headline(planned.plan, shown["totals"]),
        formulation=task.formulation,
        deadline=task.seconds,
        detail=detail,
        effects=effects,
    )


def _tables_text(planned: PlannedEpoch) -> str:
    """Return a text on the plan's tables and the shares of their queries; empty without tables."""
    found = None if planned.explanation is None else planned.explanation.tables
    if found is None or not found.tables:
        return ""
    lines = [
        "",
        f"tables: {found.seconds:.4g} CPU seconds, {found.bytes:.4g} bytes; unshared "
        f"{found.alone_seconds:.4g} seconds, {found.alone_bytes:.4g} bytes",
    ]
    for table in found.tables:
        lines.append(
            f"  {table.text}: {table.rows_in:.4g} rows in, {table.rows:.4g} kept, "
            f"{table.seconds:.4g} s, {table.bytes:.4g} bytes"
        )
        lines += [f"    {table.apart}"] if table.apart else []
        lines += [
            f"    {one.query}: {one.seconds:.4g} s, alone {one.alone_seconds:.4g} s"
            for one in table.queries
        ]
    return "\n".join(lines) + "\n"


def _headline(plan: Plan, totals: Mapping[str, int]) -> str:
    """Return the summary of a plan in one line."""
    return (
        f"{plan.optimizer} ({plan.objective} objective): cost {plan.cost:.10g}, "
        f"gap {plan.gap:.2%}, by {plan.method}; {totals['steps']} steps, "
        f"{totals['shared_steps']} of them shared; {totals['stores']} stores\n"
    )


def _added(
    body: DryRunIn,
    taken: set[str],
    streams: Mapping[str, Stream],
    settings: ServiceSettings,
    deadline: Deadline,
    others: Queries,
) -> tuple[list[JoinQuery], Mapping[str, Stream]]:
    """Return the added queries, and ``streams`` with the streams of queries that they read."""
    queries, read = list[JoinQuery](), dict(streams)
    for index, given in enumerate(body.add):
        go_on(deadline)
        name = _name(given, index)
        if name in taken:
            raise InvalidInput(
                "duplicate-query",
                f"there is a query {name!r} already",
                field=f"add.{index}.name",
                remedy="choose another name, or drop the registered one",
            )
        taken = taken | {name}
        try:
            statement = read_checked(
                settings,
                given.sql,
                given.query,
                given.window,
                given.dialect,
                streams,
                parameters=given.parameters,
                name=given.name or "",
            )
            reading = with_queries(statement, streams, others, name)
            query = reading.statement.normalise(name, reading.streams)
            check_slo(given.slo, query, reading.streams)
            for one in (*(part.query for part in reading.parts), query):
                queries.extend(one.planned)
            read |= reading.all_streams
        except (PlannerError, InvalidInput) as cause:
            raise InvalidInput(
                cause.code,
                cause.message,
                field=f"add.{index}.{cause.field or 'sql'}",
                remedy=cause.remedy,
                position=cause.position,
            ) from None
    return queries, read


def _name(given: QueryIn, index: int) -> str:
    return given.name or f"dry-run-{index}"


def _assumed(
    streams: Mapping[str, StreamRecord], retention: Mapping[str, RetentionIn | None]
) -> dict[str, Stream]:
    """Return the usable streams, with the retention that the dry run assumes."""
    found = dict(streams)
    for name, one in retention.items():
        if name not in streams:
            raise InvalidInput(
                "unknown-stream",
                f"there is no stream {name!r}",
                field=f"retention.{name}",
                remedy="GET /v1/streams lists all streams",
            )
        text = None if one is None else one.ttl
        ttl = None if text is None else read_duration(text, f"retention.{name}.ttl")
        latest = () if one is None else tuple(one.latest or ())
        found[name] = streams[name].model_copy(update={"ttl": ttl, "latest": latest})
        try:
            found[name].to_stream()
        except PlannerError as cause:
            part = (cause.field or "retention").rpartition(".")[2]
            raise InvalidInput(
                cause.code, cause.message, field=f"retention.{name}.{part}", remedy=cause.remedy
            ) from None
    return usable_streams(found.values())
