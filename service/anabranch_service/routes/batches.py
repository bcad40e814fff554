"""``/v1/batches``: the newest batches, and what each spent its time on."""

from __future__ import annotations

from typing import Annotated

from fastapi import Query, Response

from anabranch_contract.protocol.batches import BATCHES_KEPT
from anabranch_contract.rest.epochs import BatchList
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.presenters.batches import batch_out

router = guarded_router("/v1/batches", tag="state")


@router.get("")
@needs(Need.READ)
async def list_batches(
    ctx: Ctx,
    response: Response,
    last: Annotated[int, Query(ge=1, le=BATCHES_KEPT, description="Batches, at most.")] = 200,
) -> BatchList:
    """The newest committed batches, oldest first; empty before the first."""
    response.headers["Cache-Control"] = "no-store"
    return BatchList(items=[batch_out(report) for report in await ctx.store.batches(last)])
