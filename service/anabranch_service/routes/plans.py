"""``/v1/plans:dry-run``: what a plan would cost, before anything is registered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from fastapi import APIRouter

from anabranch_planner.errors import PlannerError
from anabranch_planner.model import JoinQuery, RelationId, Stream
from anabranch_planner.optimiser.explain import explain_text
from anabranch_planner.statistics import NoStatistics, Statistics
from anabranch_service.context import Ctx
from anabranch_service.errors import InvalidInput, NotFound
from anabranch_service.loop import default_planning
from anabranch_service.normalise import parse, parse_record, usable_streams
from anabranch_service.planning import StatedStatistics, Task, finite, plan_queries, problem_of
from anabranch_service.records import PlanningRecord, ProblemRecord
from anabranch_service.wire import DryRunIn, DryRunOut, ProblemOut

router = APIRouter(prefix="/v1", tags=["plans"])


@router.post("/plans:dry-run")
async def dry_run(body: DryRunIn, ctx: Ctx) -> DryRunOut:
    """Plan what is registered with some queries added and some dropped. Stores nothing."""
    current = await ctx.store.planning() or default_planning(ctx.settings)
    options = PlanningRecord(
        optimizer=body.optimizer or current.optimizer,
        objective=body.objective or current.objective,
        parallelism=body.parallelism or current.parallelism,
    )
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
    streams = usable_streams(await ctx.store.streams())
    kept = [q for q in registered if q.wanted(now) and q.id not in set(body.drop)]
    queries: list[JoinQuery] = []
    rejected: dict[str, ProblemRecord] = {}
    for record in kept:
        try:
            queries.append(parse_record(record, streams))
        except PlannerError as cause:
            rejected[record.id] = problem_of(cause)
    queries += _added(body, {q.id for q in kept}, streams)
    snapshot = await ctx.store.last_snapshot()
    task = Task(
        streams=streams,
        statistics=_stated(NoStatistics() if snapshot is None else snapshot, body, queries),
        options=options,
        epoch=0,
        sinks={},
        seconds=ctx.settings.solve_seconds,
    )
    planned = await asyncio.to_thread(plan_queries, queries, task)
    plan = planned.plan
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
        assumed=list(planned.assumed),
        rejected={
            name: ProblemOut(**problem.model_dump())
            for name, problem in {**rejected, **planned.rejected}.items()
        },
        explain=planned.explain,
        text=explain_text(plan, planned.queries),
    )


def _added(body: DryRunIn, taken: set[str], streams: Mapping[str, Stream]) -> list[JoinQuery]:
    queries = []
    for index, document in enumerate(body.add):
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
            queries.append(
                parse(
                    name,
                    streams,
                    sql=document.sql,
                    query=document.query,
                    window=document.window,
                )
            )
        except (PlannerError, InvalidInput) as cause:
            raise InvalidInput(
                cause.code,
                cause.message,
                field=f"add.{index}.{cause.field or 'sql'}",
                remedy=cause.remedy,
            ) from None
    return queries


def _stated(base: Statistics, body: DryRunIn, queries: list[JoinQuery]) -> Statistics:
    if not body.statistics:
        return base
    stream_of: dict[RelationId, str] = {r.id: r.stream for q in queries for r in q.relations}
    names = sorted({*stream_of, *stream_of.values()})
    for name in body.statistics:
        if name not in names:
            raise InvalidInput(
                "unknown-relation",
                f"no query reads a relation {name!r}",
                field=f"statistics.{name}",
                remedy="give cardinalities of " + (", ".join(names) or "nothing: no queries"),
            )
    return StatedStatistics(base, body.statistics, stream_of)
