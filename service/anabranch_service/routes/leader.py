"""``/v1/leader``: which of several services answers the runtime."""

from __future__ import annotations

from fastapi import Response

from anabranch_contract.rest.system import LeaderOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.registry.lease import leader_of

router = guarded_router("/v1/leader", tag="system")


@router.get("")
@needs(Need.TOKEN)
async def get_leader(ctx: Ctx, response: Response) -> LeaderOut:
    """The service that plans and publishes, since when, and whether it is the one that answers."""
    response.headers["Cache-Control"] = "no-store"
    found = await leader_of(ctx.store.redis, ctx.store.keys)
    if found is None:
        return LeaderOut(lease_seconds=ctx.lease.seconds)
    return LeaderOut(
        leads=found.seconds is not None,
        address=found.address,
        since=found.since,
        token=found.term.token,
        is_this=found.term == ctx.lease.term,
        lease_seconds=ctx.lease.seconds,
    )
