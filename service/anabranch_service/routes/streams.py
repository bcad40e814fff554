"""``/v1/streams``: declare what the pipeline reads."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from fastapi import APIRouter, Response

from anabranch_planner.errors import PlannerError
from anabranch_planner.exchange import Activation, Progress
from anabranch_planner.types import parse_type
from anabranch_service.context import Ctx
from anabranch_service.durations import read_duration
from anabranch_service.errors import Conflict, InvalidInput, NotFound
from anabranch_service.lifecycle import LIVE, status_of
from anabranch_service.records import ColumnRecord, QueryRecord, SourceRecord, StreamRecord
from anabranch_service.views import stream_out
from anabranch_service.wire import StreamIn, StreamList, StreamOut

router = APIRouter(prefix="/v1/streams", tags=["streams"])

DEFAULT_LATENESS = "10 minutes"


@router.post("", status_code=201, responses={200: {"model": StreamOut}})
async def add_stream(body: StreamIn, ctx: Ctx, response: Response) -> StreamOut:
    """Register a stream. The same definition again answers 200; another one, 409."""
    record = read_stream(body)
    existing = await ctx.store.streams()
    clash = next((n for n in existing if n.lower() == record.name.lower()), None)
    if clash is not None and clash != record.name:
        raise Conflict(
            "duplicate-stream",
            f"stream {clash!r} differs from {record.name!r} by case only",
            field="name",
            remedy="SQL can't tell them apart; choose another name",
        )
    if not await ctx.store.add_stream(record):
        if await ctx.store.stream(record.name) != record:
            raise Conflict(
                "duplicate-stream",
                f"stream {record.name!r} is registered with another definition",
                field="name",
                remedy="choose another name, or delete the stream first",
            )
        response.status_code = 200
    response.headers["Location"] = f"/v1/streams/{record.name}"
    return stream_out(record, await ctx.store.progress())


@router.get("")
async def list_streams(ctx: Ctx) -> StreamList:
    """All streams."""
    progress = await ctx.store.progress()
    streams = await ctx.store.streams()
    return StreamList(items=[stream_out(record, progress) for record in streams.values()])


@router.get("/{name}")
async def get_stream(name: str, ctx: Ctx) -> StreamOut:
    """One stream."""
    record = await ctx.store.stream(name)
    if record is None:
        raise _unknown(name)
    return stream_out(record, await ctx.store.progress())


@router.delete("/{name}", status_code=204)
async def delete_stream(name: str, ctx: Ctx) -> None:
    """Forget a stream; 409 while a live query uses it."""
    if await ctx.store.stream(name) is None:
        raise _unknown(name)
    activations, progress = await ctx.store.activations(), await ctx.store.progress()
    now = ctx.clock()
    blocking = await ctx.store.delete_stream(
        name, lambda queries: _users(name, queries, activations, progress, now)
    )
    if blocking:
        raise Conflict(
            "stream-in-use",
            f"stream {name!r} is used by " + ", ".join(blocking),
            field="name",
            remedy="delete these queries and wait until they have expired",
        )


def read_stream(body: StreamIn) -> StreamRecord:
    """The record that a request body asks for.

    Raises:
        InvalidInput: a type, an event time or a lateness that can't be used.
        StreamError: the columns contradict each other.
    """
    given = body.columns
    pairs = given.items() if isinstance(given, dict) else [(c.name, c.type) for c in given]
    columns = []
    for name, text in pairs:
        try:
            columns.append(ColumnRecord(name=name, type=str(parse_type(text))))
        except PlannerError as cause:
            raise InvalidInput(
                cause.code, cause.message, field=f"columns.{name}", remedy=cause.remedy
            ) from None
    record = StreamRecord(
        name=body.name,
        columns=tuple(columns),
        event_time=body.event_time,
        lateness=_lateness(body),
        source=SourceRecord(**body.source.model_dump()),
    )
    record.to_stream()
    return record


def _lateness(body: StreamIn) -> int | None:
    text = body.lateness
    if text is not None and text.strip().lower() == "unbounded":
        return None
    if body.event_time is None:
        if text is None:
            return None
        raise InvalidInput(
            "lateness-without-event-time",
            f"stream {body.name!r} has no event time to be late by",
            field="lateness",
            remedy="declare event_time, or leave lateness out",
        )
    return read_duration(DEFAULT_LATENESS if text is None else text, "lateness")


def _users(
    name: str,
    queries: list[QueryRecord],
    activations: Mapping[str, Activation],
    progress: Progress | None,
    now: datetime,
) -> list[str]:
    return [
        q.id
        for q in queries
        if any(a.stream == name for a in q.normalised.aliases)
        and status_of(q, activations.get(q.id), progress, now) in LIVE
    ]


def _unknown(name: str) -> NotFound:
    return NotFound(
        "unknown-stream",
        f"there is no stream {name!r}",
        field="name",
        remedy="GET /v1/streams lists them",
    )
