"""``/v1/state``: what the stores hold."""

from __future__ import annotations

import json
from bisect import bisect_right
from typing import Any

from fastapi import APIRouter, Response

from anabranch_service.context import Context, Ctx
from anabranch_service.errors import NotFound
from anabranch_service.measured import state_out
from anabranch_service.wire import StateOut

router = APIRouter(prefix="/v1/state", tags=["state"])


@router.get("")
async def get_state(ctx: Ctx, response: Response) -> StateOut:
    """Every store, as of the newest batch that the runtime has told of (about once a second)."""
    report = await ctx.store.state()
    if report is None:
        raise NotFound(
            "no-state",
            "the runtime has not told of any state yet",
            remedy="it does after its first batch",
        )
    response.headers["Cache-Control"] = "no-store"
    ended = report.epoch - 1
    statistics = await ctx.store.statistics(ended) if ended >= 0 else None
    rules = None if statistics is None else await _ruleset(ctx, ended)
    return state_out(report, statistics, rules)


async def _ruleset(ctx: Context, epoch: int) -> dict[str, Any] | None:
    """The rules that an epoch went by: the newest that had been published for it or before."""
    published = await ctx.store.published()
    at = bisect_right(published, epoch) - 1
    text = await ctx.store.ruleset(published[at]) if at >= 0 else None
    found: dict[str, Any] | None = None if text is None else json.loads(text)
    return found
