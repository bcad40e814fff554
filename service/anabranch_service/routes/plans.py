"""``/v1/plan``: the running plan, of all queries or one; ``/v1/plans:dry-run``: dry runs."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Annotated

from fastapi import Query

from anabranch_contract.plans.rows import read_ruleset
from anabranch_contract.plans.ruleset import Ruleset, RulesetId
from anabranch_contract.protocol.interims import Interim
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.documents import RunName
from anabranch_contract.rest.planning.joint_plan import JointPlanOut, PlanNamesOut
from anabranch_contract.rest.planning.plans import DryRunIn, DryRunOut
from anabranch_contract.rest.planning.query_plan import QueryPlanOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.errors import NotFound, known
from anabranch_service.parameters import RunPath
from anabranch_service.planning.rations import flows, kept_shares, result_seconds, seconds_of
from anabranch_service.planning.what_if.dry_run import plan_dry_run
from anabranch_service.presenters.joint_plan import joint_plan_out
from anabranch_service.presenters.names import plan_names_out
from anabranch_service.presenters.query_plan import MeasuredFlows, query_plan_out

router = guarded_router("/v1", tag="plans")


@router.post("/plans:dry-run")
@needs(Need.PLAN)
async def dry_run(body: DryRunIn, ctx: Ctx) -> DryRunOut:
    """Plan the registered queries, with some added and some removed. Stores nothing."""
    return await plan_dry_run(body, ctx.store, ctx.work, ctx.settings, ctx.clock())


#: Number of measurement periods over which rates are averaged.
PERIODS = 8


@router.get("/plan")
@needs(Need.READ)
async def joint_plan(
    ctx: Ctx,
    query: Annotated[
        RunName | None, Query(description="Restrict the graph to this query's part.")
    ] = None,
) -> JointPlanOut:
    """The running joint plan of all queries, as a graph with measured rates and CPU time."""
    progress = await ctx.store.progress()
    ruleset = await _running(ctx, progress)
    record = None if query is None else await ctx.store.query(query)
    run = query if record is None else record.id
    periods = await ctx.store.interims(PERIODS)
    meanings = {record.id: record.normalised for record in await ctx.store.queries()}

    def made() -> JointPlanOut:
        return joint_plan_out(ruleset, meanings, _measured_flows(ruleset, periods), run)

    # In a thread, since this takes tenths of a second with a thousand queries.
    return await asyncio.to_thread(made)


@router.get("/plan/names")
@needs(Need.READ)
async def plan_names(ctx: Ctx) -> PlanNamesOut:
    """Meanings of the ids of relations and intermediate results in plans and statistics."""
    progress, state = await ctx.store.progress(), await ctx.store.state()
    epoch = None if progress is None else await ctx.store.epoch(progress.ruleset_epoch)
    record = epoch or await ctx.store.newest_epoch()
    meanings = [record.normalised for record in await ctx.store.queries()]
    explain = {} if record is None else record.explain
    return await asyncio.to_thread(plan_names_out, meanings, explain, state)


@router.get("/queries/{name}/plan")
@needs(Need.READ)
async def query_plan(name: RunPath, ctx: Ctx) -> QueryPlanOut:
    """One query's part of the plan: probe paths, stores, and their costs."""
    record = known(await ctx.store.query(name), "query", name)
    progress, state = await ctx.store.progress(), await ctx.store.state()
    ruleset = await _running(ctx, progress)
    periods = await ctx.store.interims(PERIODS)
    meanings = {record.id: record.normalised for record in await ctx.store.queries()}

    # In a thread, since parsing the long record of an epoch takes time.
    planned, explained = None, await ctx.store.explanation(ruleset.epoch)
    if ruleset.substreams or explained is None:
        planned = await ctx.store.epoch(ruleset.epoch)
    substreams = () if planned is None else planned.explain.get("substreams", ())
    why = planned or explained
    tables = None if why is None else why.tables

    def made() -> QueryPlanOut | None:
        run = _run_in(ruleset, record.id)
        if run is None:
            return None
        measured = _measured_flows(ruleset, periods)
        return query_plan_out(ruleset, run, meanings, measured, state, progress, substreams, tables)

    answer = await asyncio.to_thread(made)
    if answer is None:
        raise NotFound(
            "not-in-plan",
            f"query {name!r} is not part of the plan that runs",
            remedy="GET /v1/queries/{name} says whether it is pending, or has ended",
        )
    return answer


def _measured_flows(ruleset: Ruleset, periods: Sequence[Interim]) -> MeasuredFlows:
    found, kept = flows(ruleset, periods), kept_shares(ruleset, periods)
    return MeasuredFlows(
        found,
        result_seconds(periods),
        seconds_of(ruleset, periods, found, kept),
        any(period.steps for period in periods),
        kept,
    )


def _run_in(ruleset: Ruleset, run: str) -> str | None:
    """Return ``run`` or the previous run of its query, whichever ``ruleset`` has; else None."""
    runs = [registered(query.id) for query in ruleset.queries]
    return run if run in runs else next((r for r in runs if query_of(r) == query_of(run)), None)


async def _running(ctx: Context, progress: Progress | None) -> Ruleset:
    """Return the running ruleset; before the first batch, the first published ruleset."""
    running = RulesetId(0)
    if progress is not None and progress.ruleset_epoch >= 0:
        running = RulesetId(progress.ruleset_epoch, progress.revision)
    text = await ctx.store.ruleset(running)
    if text is None:
        raise NotFound(
            "no-plan",
            "no plan has been published yet",
            remedy="the first one is published when the runtime starts",
        )
    return await asyncio.to_thread(read_ruleset, text, running)
