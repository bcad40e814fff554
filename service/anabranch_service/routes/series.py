"""``/v1/series``, ``/v1/history`` and ``/v1/batches``: measurements over time."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import Query, Response

from anabranch_contract.protocol.batches import BATCHES_KEPT
from anabranch_contract.protocol.keys import INTERIMS_KEPT
from anabranch_contract.rest.planning.epochs import BatchList
from anabranch_contract.rest.planning.series import HistoryOut, SeriesOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.presenters.series import batch_out, history_out, series_out, with_forecasts
from anabranch_service.registry.publishing.history import KEPT

router = guarded_router("/v1", tag="state")


@router.get("/series")
@needs(Need.READ)
async def get_series(
    ctx: Ctx,
    response: Response,
    last: Annotated[int, Query(ge=1, le=INTERIMS_KEPT, description="Newest periods.")] = 60,
    forecast: Annotated[bool, Query(description="Include forecasts.")] = False,
) -> SeriesOut:
    """Rates of relations, hit ratios of steps and sizes of stores, period by period; empty before
    the first period has ended."""
    response.headers["Cache-Control"] = "no-store"
    interims = await ctx.store.interims(last)
    # In a thread: for thousands of series this takes half a second, with forecasts two seconds.
    return await asyncio.to_thread(with_forecasts if forecast else series_out, interims)


@router.get("/history")
@needs(Need.READ)
async def get_history(
    ctx: Ctx,
    response: Response,
    stream: Annotated[str | None, Query(max_length=200, description="Stream of the rates.")] = None,
    query: Annotated[str | None, Query(max_length=200, description="Query of the rates.")] = None,
    last: Annotated[int, Query(ge=1, le=KEPT, description="Newest minutes.")] = KEPT,
    minutes: Annotated[int, Query(ge=1, le=240, description="Length of a point in minutes.")] = 1,
) -> HistoryOut:
    """Mean batch time, freshness, interruptions, and the rate of a stream, of a query's run, or of
    all streams together (of the 100 highest rates; others count as 0); empty in the first minute.
    A run's history begins with its registration."""
    response.headers["Cache-Control"] = "no-store"
    points = await ctx.store.history(last)
    if stream is not None or query is None:
        return history_out(points, minutes, streams=None if stream is None else {stream})
    record = await ctx.store.query(query)
    if record is None:
        return history_out(points, minutes, query=query, streams=())
    points = [point for point in points if point.at > record.created_at.timestamp()]
    streams = {alias.stream for alias in record.normalised.aliases}
    return history_out(points, minutes, query=record.id, streams=streams)


@router.get("/batches")
@needs(Need.READ)
async def list_batches(
    ctx: Ctx,
    response: Response,
    last: Annotated[int, Query(ge=1, le=BATCHES_KEPT, description="Newest batches.")] = 200,
) -> BatchList:
    """The newest committed batches, oldest first; empty before the first."""
    response.headers["Cache-Control"] = "no-store"
    return BatchList(items=[batch_out(report) for report in await ctx.store.batches(last)])
