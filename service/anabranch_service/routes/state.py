"""``/v1/state``: contents of the stores, and counts of their probes."""

from __future__ import annotations

import json
from typing import Annotated, Any

from fastapi import Path, Query, Response
from pydantic import TypeAdapter

from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.state_report import StateReport
from anabranch_contract.rest.state import StateOut, StoreDetailOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.errors import NotFound
from anabranch_service.presenters.state import KEPT, state_out, store_detail_out

router = guarded_router("/v1/state", tag="state")

#: Skips FastAPI's second validation of answers, which may have thousands of stores.
_STATE = TypeAdapter(StateOut)


@router.get("", response_model=StateOut)
@needs(Need.READ)
async def get_state(ctx: Ctx) -> Response:
    """Every store, as of the newest batch that the runtime has reported (about once a second)."""
    report = await _state_report(ctx)
    found = state_out(report, await _last_ended(ctx, report))
    headers = {"Cache-Control": "no-store"}
    return Response(_STATE.dump_json(found), headers=headers, media_type="application/json")


# The parameter is of type ``path``, since a store's name contains slashes.
@router.get("/stores/{store:path}")
@needs(Need.READ)
async def get_store(
    ctx: Ctx,
    response: Response,
    store: Annotated[str, Path(description="Name of the store in GET /v1/state.", min_length=1)],
    epochs: Annotated[
        int, Query(ge=0, le=KEPT, description="Number of epochs in the history.")
    ] = 30,
) -> StoreDetailOut:
    """One store with its segments, the probes that read it, and its last epochs."""
    report = await _state_report(ctx)
    found = next((one for one in report.stores if one.store == store), None)
    if found is None:
        raise NotFound(
            "unknown-store",
            f"there is no store {store!r}",
            field="store",
            remedy="GET /v1/state lists all stores; a store that no query needs is dropped",
        )
    response.headers["Cache-Control"] = "no-store"
    rules = await ctx.store.ruleset(report.ruleset_epoch)
    ruleset: dict[str, Any] | None = None if rules is None else json.loads(rules)
    return store_detail_out(
        report,
        found,
        await ctx.store.state_parts(store),
        await _last_ended(ctx, report),
        ruleset,
        await ctx.history.of(store, report.epoch - 1, epochs),
    )


async def _state_report(ctx: Context) -> StateReport:
    report = await ctx.store.state()
    if report is None:
        raise NotFound(
            "no-state",
            "the runtime has not reported any state yet",
            remedy="it reports after its first batch",
        )
    return report


async def _last_ended(ctx: Context, report: StateReport) -> Snapshot | None:
    """Return the statistics of the epoch before the running one."""
    ended = report.epoch - 1
    return await ctx.store.statistics(ended) if ended >= 0 else None
