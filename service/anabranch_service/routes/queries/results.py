"""``/v1/queries/{name}/results``: a query's results as they are committed."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from fastapi import Header, Query, Request
from fastapi.responses import StreamingResponse

from anabranch_contract.connectors.sinks import SinkKind
from anabranch_contract.rest.queries import ViewRowsOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.errors import Conflict, known
from anabranch_service.parameters import RunPath
from anabranch_service.presenters.view_rows import view_rows_out
from anabranch_service.registry.lifecycle import Status, status_of
from anabranch_service.streaming.tail import Reader, Start, TailPosition

router = guarded_router("/v1/queries", tag="queries")

MEDIA_TYPE = "text/event-stream"

LastEventId = Annotated[
    str | None,
    Header(
        alias="Last-Event-ID",
        pattern=r"^[0-9]{1,15}:[0-9]{1,15}$",
        description="Id of the last received event; the stream continues after it.",
    ),
]


@router.get(
    "/{name}/results",
    response_class=StreamingResponse,
    responses={200: {"description": "Server-sent events", "content": {MEDIA_TYPE: {}}}},
)
@needs(Need.READ)
async def follow_results(
    name: RunPath,
    ctx: Ctx,
    request: Request,
    start: Annotated[Start, Query(alias="from", description="The first row.")] = Start.NOW,
    limit: Annotated[int | None, Query(ge=1, le=10**9, description="Rows to return.")] = None,
    last_event_id: LastEventId = None,
) -> StreamingResponse:
    """Follow a query's results as server-sent events: `row`, `gap`, `live` and `end`.

    Only committed results are sent; for a view, its changes. `gap` has the number of rows that were
    skipped because the reader was too slow: the pipeline does not wait for readers.
    """
    record = known(await ctx.store.query(name), "query", name)
    if record.sink.to_sink().kind is SinkKind.COUNT:
        raise Conflict(
            "sink-without-rows",
            f"query {name!r} counts its results and keeps none",
            field="name",
            remedy="register the query again, with a sink that takes rows",
        )
    run = record.id

    async def status() -> Status:
        current = await ctx.store.run(run)
        activation = await ctx.store.activation(run)
        progress = await ctx.store.progress()
        return status_of(current or record, activation, progress, ctx.clock())

    after = None if last_event_id is None else TailPosition.read(last_event_id)
    identity = request.state.identity
    reader = Reader(identity.token, partial(ctx.gate.is_valid, identity))
    events = ctx.tails.follow(run, start, after, limit, status, reader)
    headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    return StreamingResponse(events, media_type=MEDIA_TYPE, headers=headers)


@router.get("/{name}/rows")
@needs(Need.READ)
async def view_rows(
    name: RunPath,
    ctx: Ctx,
    limit: Annotated[int, Query(ge=1, le=1000, description="Rows to return.")] = 100,
    scaled: Annotated[
        bool, Query(description="Also estimate counts, sums and averages, withheld rows included.")
    ] = False,
) -> ViewRowsOut:
    """The current rows of a query's view, in its order."""
    record = known(await ctx.store.query(name), "query", name)
    if record.normalised.view is None:
        raise Conflict(
            "no-view",
            f"query {name!r} has no view (aggregates, DISTINCT, ORDER BY … LIMIT) over its joins",
            field="name",
            remedy=f"follow them at /v1/queries/{name}/results, or read its sink",
        )
    found = await ctx.store.view_rows(record.id)
    # An outer join's activation has the completeness of its pairs, not of its results.
    outer = record.normalised.outer is not None
    activation = None if outer else await ctx.store.activation(record.id)
    columns = [c.name for c in record.normalised.output]
    return view_rows_out(columns, found, activation, limit, scaled=scaled)
