"""``/v1/epochs``: published epochs and the running one."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated

from fastapi import Header, Path, Query, Response

from anabranch_contract.plans.ruleset import digest
from anabranch_contract.rest.documents import RunName
from anabranch_contract.rest.planning.epochs import CurrentEpoch, EpochDiffOut, EpochList, EpochOut
from anabranch_contract.rest.planning.plans import Detail
from anabranch_contract.rest.planning.revisions import RevisionList
from anabranch_contract.rest.planning.statistics import StatisticsOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.errors import NotFound
from anabranch_service.parameters import Limit
from anabranch_service.planning.what_if.epoch_diff import compare_epochs
from anabranch_service.presenters.epochs import (
    cut,
    epoch_items,
    epoch_out,
    epoch_summary,
    runtime_out,
    summarised,
)
from anabranch_service.presenters.saving import EPOCHS, saving_out
from anabranch_service.presenters.statistics import statistics_out

router = guarded_router("/v1/epochs", tag="epochs")

IMMUTABLE = "public, max-age=31536000, immutable"
REVALIDATE = "no-cache"

Number = Annotated[int, Path(ge=0, le=2**53, description="Number of the epoch.")]
IfNoneMatch = Annotated[
    str | None,
    Header(description="ETags of known versions: the answer is 304 if one of them is current."),
]


@router.get("")
@needs(Need.READ)
async def list_epochs(
    ctx: Ctx,
    limit: Limit = 100,
    cursor: Annotated[
        str | None, Query(pattern=r"^[0-9]{1,15}$", description="`next_cursor` of the page before.")
    ] = None,
    detail: Annotated[
        Detail, Query(description="`summary` leaves out the names of unchanged queries.")
    ] = "full",
) -> EpochList:
    """Published epochs, newest first."""
    numbers = list(reversed(await ctx.store.published()))
    if cursor is not None:
        numbers = [n for n in numbers if n < int(cursor)]
    more = len(numbers) > limit
    progress = await ctx.store.progress()
    # One more than are listed, with which the last one is compared.
    kept = await ctx.store.summaries(numbers[: limit + 1])
    return EpochList(
        items=epoch_items(kept, limit, progress, brief=detail == "summary"),
        next_cursor=str(numbers[limit - 1]) if more else None,
    )


@router.get("/current")
@needs(Need.READ)
async def current_epoch(
    ctx: Ctx,
    response: Response,
    detail: Annotated[
        Detail,
        Query(description="`summary` leaves out shares, reasons, difference and most of the plan."),
    ] = "full",
) -> CurrentEpoch:
    """The running epoch; before the first batch, the first published one."""
    progress = await ctx.store.progress()
    running = progress.epoch if progress is not None else -1
    published = await ctx.store.published()
    at = bisect_right(published, max(running, 0)) - 1
    number = published[at] if at >= 0 else None
    record = await ctx.store.epoch(number) if number is not None else None
    if record is None:
        raise NotFound(
            "no-epoch",
            "no epoch has been published yet",
            remedy="the first one is published when the runtime starts",
        )
    response.headers["Cache-Control"] = "no-store"
    epoch = epoch_out(record, progress)
    recent = await ctx.store.summaries(published[at::-1][:EPOCHS])
    return CurrentEpoch(
        running=running,
        epoch=summarised(epoch) if detail == "summary" else epoch,
        runtime=runtime_out(
            progress,
            await ctx.store.heartbeat(),
            await ctx.store.standby(),
            await ctx.store.sources(),
        ),
        saving=saving_out([epoch_summary(one, n, progress) for one, n in recent], ctx.clock()),
    )


@router.get("/{number}", response_model=EpochOut)
@needs(Need.READ)
async def get_epoch(
    number: Number,
    ctx: Ctx,
    detail: Annotated[
        Detail, Query(description="`summary` leaves out reasons and the plan, and cuts long lists.")
    ] = "full",
    query: Annotated[
        RunName | None, Query(description="Run whose part of the plan a summary has.")
    ] = None,
    if_none_match: IfNoneMatch = None,
) -> Response:
    """One published epoch with its whole plan. Immutable once explained and started."""
    record = await ctx.store.epoch(number)
    if record is None:
        raise _unknown(number)
    out = epoch_out(record, await ctx.store.progress())
    settled = out.first_batch is not None and out.explained
    caching = IMMUTABLE if settled else REVALIDATE
    if detail == "summary":
        out = cut(out, query)
    return _tagged(out.model_dump_json(), caching, if_none_match)


@router.get(
    "/{number}/ruleset",
    response_class=Response,
    responses={200: {"content": {"application/json": {"schema": {"type": "object"}}}}},
)
@needs(Need.READ)
async def get_ruleset(number: Number, ctx: Ctx, if_none_match: IfNoneMatch = None) -> Response:
    """The ruleset (store, probe and output rules) of an epoch, as workers execute it."""
    text = await ctx.store.ruleset(number)
    if text is None:
        raise _unknown(number)
    return _tagged(text, IMMUTABLE, if_none_match)


@router.get("/{number}/diff")
@needs(Need.READ)
async def get_diff(
    number: Number,
    ctx: Ctx,
    since: Annotated[
        int | None,
        Query(
            alias="from",
            ge=0,
            le=2**53,
            description="Epoch to compare with; default: the one before.",
        ),
    ] = None,
) -> EpochDiffOut:
    """Difference between the plans of two epochs, priced by the newest statistics, with reasons."""
    after = await ctx.store.epoch(number)
    if after is None:
        raise _unknown(number)
    if since is None:
        before = await ctx.store.newest_epoch(number) or after
    else:
        found = await ctx.store.epoch(since)
        if found is None:
            raise _unknown(since)
        before = found
    return await compare_epochs(before, after, ctx.store, ctx.work, ctx.settings, ctx.clock())


@router.get("/{number}/revisions")
@needs(Need.READ)
async def get_revisions(number: Number, ctx: Ctx) -> RevisionList:
    """Revisions of an epoch's ruleset (changes within the epoch): reasons, costs and savings."""
    if await ctx.store.epoch(number) is None:
        raise _unknown(number)
    return RevisionList(items=await ctx.store.revisions(number))


@router.get("/{number}/statistics")
@needs(Need.READ)
async def get_statistics(number: Number, ctx: Ctx) -> StatisticsOut:
    """Measurements of an epoch: streams, stores, edges, distinct keys."""
    found = await ctx.store.statistics(number)
    if found is None:
        raise NotFound(
            "no-statistics",
            f"no statistics of epoch {number} have been reported",
            remedy="wait until the epoch has ended; GET /v1/epochs/current shows the running epoch",
        )
    epoch = await ctx.store.epoch(number)
    return statistics_out(found, {} if epoch is None else epoch.explain)


def _tagged(text: str, caching: str, if_none_match: str | None) -> Response:
    tag = f'"{digest(text)}"'
    headers = {"ETag": tag, "Cache-Control": caching}
    known = {t.strip().removeprefix("W/") for t in (if_none_match or "").split(",")}
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(text, 200, headers, "application/json")


def _unknown(number: int) -> NotFound:
    return NotFound(
        "unknown-epoch",
        f"epoch {number} has not been published",
        remedy="GET /v1/epochs lists published epochs; an epoch that was not planned uses the "
        "newest older ruleset",
    )
