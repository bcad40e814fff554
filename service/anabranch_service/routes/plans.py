"""``/v1/plan``: the joint plan that runs; ``/v1/plans:dry-run``: what another would cost."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query

from anabranch_contract.plans import ruleset as rulesets
from anabranch_contract.plans.ruleset import RulesetId
from anabranch_contract.rest.documents import RunName
from anabranch_contract.rest.joint_plan import JointPlanOut
from anabranch_contract.rest.plans import DryRunIn, DryRunOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.errors import NotFound
from anabranch_service.planning.dry_run import plan_dry_run
from anabranch_service.planning.rations import flows, seconds_of
from anabranch_service.presenters.joint_plan import joint_plan_out

router = guarded_router("/v1", tag="plans")


@router.post("/plans:dry-run")
@needs(Need.PLAN)
async def dry_run(body: DryRunIn, ctx: Ctx) -> DryRunOut:
    """Plan what is registered with some queries added and some dropped. Stores nothing."""
    return await plan_dry_run(body, ctx.store, ctx.work, ctx.settings, ctx.clock())


#: Periods that rates are of.
PERIODS = 8


@router.get("/plan")
@needs(Need.READ)
async def joint_plan(
    ctx: Ctx,
    query: Annotated[
        RunName | None, Query(description="Leave out what this query does not need.")
    ] = None,
) -> JointPlanOut:
    """The plan that runs, over all queries, as a graph with measured rates and CPU time."""
    progress = await ctx.store.progress()
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
    record = None if query is None else await ctx.store.query(query)
    run = query if record is None else record.id
    periods = await ctx.store.interims(PERIODS)
    meanings = {record.id: record.normalised for record in await ctx.store.queries()}

    def made() -> JointPlanOut:
        ruleset = rulesets.loads(text)
        found = flows(ruleset, periods)
        cpu = seconds_of(ruleset, periods, found)
        measured = any(period.steps for period in periods)
        return joint_plan_out(ruleset, meanings, found, cpu, measured=measured, query=run)

    # Of a thousand queries this takes tenths of a second.
    return await asyncio.to_thread(made)
