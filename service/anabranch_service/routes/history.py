"""``/v1/history``: a day in points of a minute."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

from fastapi import Query, Response

from anabranch_contract.rest.series import HistoryOut, HistoryPointOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.registry.history import EVERY, KEPT, HistoryPoint

router = guarded_router("/v1/history", tag="state")


@router.get("")
@needs(Need.READ)
async def get_history(
    ctx: Ctx,
    response: Response,
    stream: Annotated[str | None, Query(max_length=200, description="Rates of it.")] = None,
    query: Annotated[str | None, Query(max_length=200, description="Rates of its results.")] = None,
    last: Annotated[int, Query(ge=1, le=KEPT, description="Minutes, at most.")] = KEPT,
) -> HistoryOut:
    """How long batches took on average, and the rate of a stream or of a query's run (0 where it is
    not among the 100 highest); empty in the first minute.
    """
    response.headers["Cache-Control"] = "no-store"
    points = await ctx.store.history(last)
    return HistoryOut(seconds=EVERY, items=[_out(point, stream, query) for point in points])


def _out(point: HistoryPoint, stream: str | None, query: str | None) -> HistoryPointOut:
    rate = None
    if stream is not None or query is not None:
        rate = point.rows.get(stream, 0.0) if stream else point.results.get(query or "", 0.0)
    at = datetime.fromtimestamp(point.at, UTC)
    return HistoryPointOut(at=at, batch_seconds=point.batch_seconds, rate=rate)
