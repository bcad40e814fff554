"""``/v1/plans:dry-run``: what a plan would cost, before anything is registered."""

from __future__ import annotations

from anabranch_contract.rest.plans import DryRunIn, DryRunOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.planning.dry_run import plan_dry_run

router = guarded_router("/v1", tag="plans")


@router.post("/plans:dry-run")
@needs(Need.PLAN)
async def dry_run(body: DryRunIn, ctx: Ctx) -> DryRunOut:
    """Plan what is registered with some queries added and some dropped. Stores nothing."""
    return await plan_dry_run(body, ctx.store, ctx.work, ctx.settings, ctx.clock())
