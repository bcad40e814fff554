"""``/v1/series``: measurements of the newest periods of a few seconds."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query, Response

from anabranch_contract.protocol.keys import INTERIMS_KEPT
from anabranch_contract.rest.series import SeriesOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.presenters.series import series_out, with_forecasts

router = guarded_router("/v1/series", tag="state")


@router.get("")
@needs(Need.READ)
async def get_series(
    ctx: Ctx,
    response: Response,
    last: Annotated[int, Query(ge=1, le=INTERIMS_KEPT, description="Periods, at most.")] = 60,
    forecast: Annotated[bool, Query(description="Say what is expected as well.")] = False,
) -> SeriesOut:
    """Rates of relations, hit ratios of steps and sizes of stores, period by period; empty before
    the first period has ended.
    """
    response.headers["Cache-Control"] = "no-store"
    interims = await ctx.store.interims(last)
    # Thousands of series take half a second, their forecasts two: the event loop must not wait.
    return await asyncio.to_thread(with_forecasts if forecast else series_out, interims)
