"""``/v1/plans:dry-run``: what a plan would cost, before anything is registered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace

from anabranch_contract.errors import PlannerError
from anabranch_contract.plans.plan import Formulation
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_planner.cost.sampling import estimate
from anabranch_planner.cost.statistics import NoStatistics, Statistics
from anabranch_planner.cost.uncertainty import cost_range
from anabranch_planner.explain.explain import explain_text
from anabranch_planner.solvers.deadline import Watch
from anabranch_planner.sql.dialects import to_spark
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.durations import read_duration
from anabranch_service.errors import InvalidInput, NotFound
from anabranch_service.planning.assumptions import Names, assume
from anabranch_service.planning.epoch import (
    Planned,
    StatedStatistics,
    Task,
    finite,
    plan_queries,
    problem_of,
)
from anabranch_service.planning.loop import default_planning
from anabranch_service.planning.what_if import (
    FULL,
    SUMMARY,
    Insight,
    Limits,
    Running,
    decided_in,
    explain_choice,
    read_running,
    rewired_from,
)
from anabranch_service.planning.work import go_on
from anabranch_service.registry.lifecycle import is_wanted
from anabranch_service.registry.normalise import parse, parse_record, usable_streams
from anabranch_service.registry.records import ProblemRecord, QueryRecord, StreamRecord
from anabranch_service.registry.sizes import check_query
from anabranch_service.routes.settings import changed
from anabranch_service.settings import Settings
from anabranch_service.wire.plans import CostRangeOut, DryRunIn, DryRunOut
from anabranch_service.wire.queries import ProblemOut
from anabranch_service.wire.streams import RetentionIn

router = guarded_router("/v1", tag="plans")


@router.post("/plans:dry-run")
@needs(Need.PLAN)
async def dry_run(body: DryRunIn, ctx: Ctx) -> DryRunOut:
    """Plan what is registered with some queries added and some dropped. Stores nothing."""
    current = await ctx.store.planning() or default_planning(ctx.settings)
    options = changed(current, body)
    if body.formulation is Formulation.PAPER:
        # It knows neither limits nor the running plan.
        unlimited = {"switching": 0.0, "memory": None, "copies": None}
        options = options.model_copy(update=unlimited)
    now = ctx.clock()
    registered = await ctx.store.queries()
    known = {q.id for q in registered}
    for name in body.drop:
        if name not in known:
            raise NotFound(
                "unknown-query",
                f"there is no query {name!r} to drop",
                field="drop",
                remedy="GET /v1/queries lists them",
            )
    known_streams = await ctx.store.streams()
    streams = usable_streams(_assumed(known_streams, body.retention))
    activations, dropped = await ctx.store.activations(), set(body.drop)
    kept = [
        q for q in registered if is_wanted(q, activations.get(q.id), now) and q.id not in dropped
    ]
    # What is registered was understood once; only what is new has a limit.
    queries, rejected = await ctx.work.call(_registered, kept, streams)
    async with ctx.work.limited() as watch:
        taken = {q.id for q in kept}
        queries += await ctx.work.call(_added, body, taken, streams, ctx.settings, watch)
    snapshot = await ctx.store.last_snapshot()
    names = Names(queries)
    for name in body.widths:
        names.require(name, f"widths.{name}")
    stated = _stated(NoStatistics() if snapshot is None else snapshot, body, names)
    assumed = assume(stated, names, body.distinct, body.selectivity, body.statistics)
    limit = ctx.settings.solve_seconds
    task = Task(
        streams=streams,
        statistics=estimate(assumed, queries, await ctx.store.samples()),
        options=options,
        epoch=0,
        sinks={},
        seconds=limit if body.deadline is None else min(body.deadline, limit),
        formulation=body.formulation,
    )
    published = await ctx.store.published()
    latest = await ctx.store.epoch(published[-1]) if published else None
    running = read_running(latest, registered, usable_streams(known_streams))
    task = replace(
        task,
        running=rewired_from(running),
        widths=body.widths,
        backfills=decided_in(running),
    )
    limits = SUMMARY if body.detail == "summary" else FULL
    planned, insight = await asyncio.to_thread(_plan, queries, task, running, limits, body.widths)
    plan = planned.plan
    spread = await asyncio.to_thread(
        cost_range, plan, planned.queries, task.statistics, parallelism=options.parallelism
    )
    whole = body.detail == "full"
    return DryRunOut(
        optimizer=plan.optimizer,
        objective=plan.objective,
        parallelism=options.parallelism,
        queries=[q.id for q in planned.queries],
        cost=plan.cost,
        bound=finite(plan.bound),
        gap=finite(plan.gap),
        individual_cost=planned.individual_cost,
        shared_cost=planned.shared_cost,
        solve_ms=planned.solve_ms,
        method=plan.method,
        candidates=plan.candidates,
        variables=plan.variables,
        constraints=plan.constraints,
        statistics_epoch=None if snapshot is None else snapshot.epoch,
        cost_range=CostRangeOut(low=spread.low, high=spread.high),
        assumed=list(planned.assumed),
        estimated=planned.estimated,
        rejected={
            name: ProblemOut(**problem.model_dump())
            for name, problem in {**rejected, **planned.rejected}.items()
        },
        explain=planned.explain if whole else {"totals": planned.explain["totals"]},
        text=explain_text(plan, planned.queries) if whole else _headline(planned),
        fallback=planned.fallback,
        formulation=task.formulation,
        switching_cost=plan.switching,
        switching=options.switching,
        memory=options.memory,
        copies=options.copies,
        solver=options.solver,
        deadline=task.seconds,
        detail=body.detail,
        diff=insight.diff,
        diff_reason=insight.diff_reason,
        shares=insight.shares,
        reasons=insight.reasons,
    )


def _plan(
    queries: list[JoinQuery],
    task: Task,
    running: Running | None,
    limits: Limits,
    widths: Mapping[str, float],
) -> tuple[Planned, Insight]:
    planned = plan_queries(queries, task)
    return planned, explain_choice(planned, task, running, limits=limits, widths=widths)


def _headline(planned: Planned) -> str:
    """One line in place of the plan's text."""
    plan, totals = planned.plan, planned.explain["totals"]
    return (
        f"{plan.optimizer} ({plan.objective} objective): cost {plan.cost:.10g}, "
        f"gap {plan.gap:.2%}, by {plan.method}; {totals['steps']} steps, "
        f"{totals['shared_steps']} of them shared; {totals['stores']} stores\n"
    )


def _registered(
    records: list[QueryRecord], streams: Mapping[str, Stream]
) -> tuple[list[JoinQuery], dict[str, ProblemRecord]]:
    queries: list[JoinQuery] = []
    rejected: dict[str, ProblemRecord] = {}
    for record in records:
        try:
            queries.extend(parse_record(record, streams).planned)
        except PlannerError as cause:
            rejected[record.id] = problem_of(cause)
    return queries, rejected


def _added(
    body: DryRunIn,
    taken: set[str],
    streams: Mapping[str, Stream],
    settings: Settings,
    watch: Watch,
) -> list[JoinQuery]:
    queries: list[JoinQuery] = []
    for index, document in enumerate(body.add):
        go_on(watch)
        name = document.id or f"dry-run-{index}"
        if name in taken:
            raise InvalidInput(
                "duplicate-query",
                f"query {name!r} is there already",
                field=f"add.{index}.id",
                remedy="choose another id, or drop the registered one",
            )
        taken = taken | {name}
        try:
            sql = None if document.sql is None else to_spark(document.sql, document.dialect)
            check_query(sql, document.query, settings)
            parsed = parse(
                name,
                streams,
                sql=sql,
                query=document.query,
                window=document.window,
                dialect=document.dialect,
            )
            queries.extend(parsed.planned)
        except (PlannerError, InvalidInput) as cause:
            raise InvalidInput(
                cause.code,
                cause.message,
                field=f"add.{index}.{cause.field or 'sql'}",
                remedy=cause.remedy,
                position=cause.position,
            ) from None
    return queries


def _assumed(
    streams: Mapping[str, StreamRecord], retention: Mapping[str, RetentionIn | None]
) -> dict[str, StreamRecord]:
    """The streams with the retention that is to be assumed."""
    found = dict(streams)
    for name, one in retention.items():
        if name not in streams:
            raise InvalidInput(
                "unknown-stream",
                f"there is no stream {name!r}",
                field=f"retention.{name}",
                remedy="GET /v1/streams lists them",
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
    return found


def _stated(base: Statistics, body: DryRunIn, names: Names) -> Statistics:
    if not body.statistics:
        return base
    for name in body.statistics:
        names.require(name, f"statistics.{name}")
    return StatedStatistics(base, body.statistics, names.stream_of)
