"""``/v1/streams``: register, change and delete streams."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any
from uuid import uuid4

from fastapi import Query, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from anabranch_contract.connectors.file_sources import check_nested, is_json
from anabranch_contract.connectors.lake.options import LAKE
from anabranch_contract.connectors.postgres.options import POSTGRES
from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.intake import SourceState
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Mode, Progress
from anabranch_contract.protocol.registered import ColumnRecord, StreamRecord
from anabranch_contract.queries.changes import OPERATION, ChangeFormat, Envelope
from anabranch_contract.queries.joins import Stream, StreamKind
from anabranch_contract.queries.runs import query_of
from anabranch_contract.queries.types import INTEGRAL, TypeKind, parse_type
from anabranch_contract.rest.documents import QueryName
from anabranch_contract.rest.planning.statistics import SampleOut
from anabranch_contract.rest.streams import (
    PROPERTIES,
    ChangesIn,
    RetentionIn,
    RowsIn,
    RowsOut,
    StreamIn,
    StreamList,
    StreamOut,
    StreamPatch,
)
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.durations import read_duration, read_positive
from anabranch_service.errors import Conflict, InvalidInput, NotFound, known
from anabranch_service.parameters import StreamPath
from anabranch_service.presenters.records import stream_out
from anabranch_service.presenters.statistics import sample_out
from anabranch_service.registry.alterations.reread import check_followers, check_reread
from anabranch_service.registry.alterations.retention import check_kept, replanned
from anabranch_service.registry.derived import is_query
from anabranch_service.registry.lifecycle import LIVE, overtaken, readers, reads, status_of
from anabranch_service.registry.permitted import check_policy, check_push, check_stream
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.sizes import check_columns, check_room
from anabranch_service.registry.statements import usable_streams
from anabranch_service.settings import ServiceSettings
from anabranch_service.streaming.postgres import with_catalog
from anabranch_service.streaming.pushing import IdempotencyKey, Pushed, append, check_backlog
from anabranch_service.streaming.rows import entries, read_rows, target
from anabranch_service.versions import IfMatch, check_version, etag

router = guarded_router("/v1/streams", tag="streams")

DEFAULT_LATENESS = "10 minutes"
#: Default bounds of event times in the future, for streams with a bounded lateness.
AHEAD = {"ahead_of_clock": "1 day", "ahead_of_stream": "366 days"}
#: Keywords of ``retain`` -> microseconds, or None (for ever).
RETAIN = {"all": None, "none": 0}
#: Maximum number of invalid rows named in an error.
REPORTED = 20
#: Seconds for which a registration waits for the runtime's first read of the source, and seconds
#: between two checks.
TRIAL_SECONDS, LOOK_SECONDS = 3.0, 0.05


@router.post("", status_code=201, responses={200: {"model": StreamOut}})
@needs(Need.EDIT)
async def add_stream(
    body: StreamIn,
    ctx: Ctx,
    response: Response,
    wait: Annotated[
        float, Query(ge=0, le=30, description="Seconds to wait for the first read of the source.")
    ] = TRIAL_SECONDS,
) -> StreamOut:
    """Register a stream. If the name is taken, the answer is 200 if the definitions are equal, else
    409.

    With a running runtime, the answer waits (usually a second) until it has tried to read the
    source; ``source_status`` has the outcome. A stream with an unreadable source is registered
    nonetheless, and its source is tried again.
    """
    async with ctx.work.limited():
        given = await ctx.work.read(read_stream, body, ctx.settings)
    # In a replay the id is constant, since the same rulesets must result each time.
    registration = "replay" if ctx.settings.mode is Mode.STEP else uuid4().hex[:8]
    record = given.model_copy(update={"registration": registration})
    async with ctx.store.registering:
        former = await _add(ctx, record)
    if former is not None:
        record, response.status_code = former, 200
    response.headers["Location"] = f"/v1/streams/{record.name}"
    await _tried(ctx, record, wait)
    return await _shown(ctx, record, response)


async def _add(ctx: Context, record: StreamRecord) -> StreamRecord | None:
    """Register a stream; return the one that is there already with the same definition, or None.

    Raises:
        Conflict: another stream or a query has the name, or there are too many streams.
    """
    while True:
        version = await ctx.store.version()
        existing = await ctx.store.streams()
        clash = next((n for n in existing if n.lower() == record.name.lower()), None)
        if clash is not None and clash != record.name:
            raise Conflict(
                "duplicate-stream",
                f"stream {clash!r} differs from {record.name!r} by case only",
                field="name",
                remedy="SQL can't tell them apart; choose another name",
            )
        await _check_name(ctx, record)
        former = await ctx.store.stream(record.name)
        if former is not None:
            if record.same_definition(former):
                return former
            raise Conflict(
                "duplicate-stream",
                f"stream {record.name!r} is registered with another definition",
                field="name",
                remedy="choose another name, or delete the stream first",
            )
        check_room("streams", len(existing), ctx.settings.sizes.max_streams)
        if await ctx.store.add_stream(record, version):
            return None


@router.get("")
@needs(Need.READ)
async def list_streams(
    ctx: Ctx,
    limit: Annotated[int | None, Query(ge=1, le=1000, description="Streams per page.")] = None,
    cursor: Annotated[
        QueryName | None, Query(description="Stream after which the page begins.")
    ] = None,
    parts: Annotated[
        bool, Query(description="Include the streams of subqueries that run as separate queries.")
    ] = False,
) -> StreamList:
    """All streams in order of names; with ``limit`` or ``cursor``, a page of them."""
    progress = await ctx.store.progress()
    streams, last = await ctx.store.streams(), await ctx.store.last_snapshot()
    sources = await ctx.store.sources()
    inner = set() if parts else {one.id for one in await ctx.store.queries() if one.part_of}
    left = [
        record
        for name, record in streams.items()
        if (cursor is None or name > cursor) and name not in inner
    ]
    page = left[:limit]
    return StreamList(
        items=[stream_out(record, progress, sources, last) for record in page],
        next_cursor=page[-1].name if len(page) < len(left) else None,
    )


@router.get("/{name}")
@needs(Need.READ)
async def get_stream(name: StreamPath, ctx: Ctx, response: Response) -> StreamOut:
    """One stream."""
    record = known(await ctx.store.stream(name), "stream", name)
    return await _shown(ctx, record, response)


@router.patch("/{name}")
@needs(Need.EDIT)
async def patch_stream(
    name: StreamPath, body: StreamPatch, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> StreamOut:
    """Change a stream: its idle timeout, handling of late tuples and retention from the next
    planned epoch on, its handling of lost input at once. A shorter ttl drops stored tuples that no
    query can join any more. A changed or removed ``latest`` key drops all stored tuples of the
    stream; its queries then see only later tuples."""
    changes: dict[str, Any] = body.model_dump(include=PROPERTIES, exclude_none=True)
    if body.accepted_rejects is not None:
        changes["accepted_rejects"] = body.accepted_rejects
    if "idle_timeout" in body.model_fields_set:
        changes["idle_timeout"] = _idle_timeout(body.idle_timeout)
    for field in AHEAD:
        if getattr(body, field) is not None:
            changes[field] = _ahead_bound(getattr(body, field), field)
    if "retention" in body.model_fields_set:
        changes |= _retention(body.retention)
    if body.retain is not None:
        changes["retain"] = _retain(body.retain)

    before: Stream | None = None

    def change(record: StreamRecord) -> StreamRecord:
        nonlocal before
        check_version(record, if_match)
        if is_query(record):
            raise Conflict(
                "stream-of-query",
                f"stream {name!r} is query {name!r}, as other queries read it",
                field="name",
                remedy="its properties do not change",
            )
        check_kept(record, changes)
        changed = record.model_copy(update=changes)
        before = record.to_stream()
        policies = {
            "on_loss": body.on_loss,
            "on_bad_file": body.on_bad_file,
            "on_changed_file": body.on_changed_file,
        }
        given = {option: policy.value for option, policy in policies.items() if policy is not None}
        for option in given:
            check_policy(record, option)
        if given:
            options = {**record.source.options, **given}
            source = record.source.model_copy(update={"options": options})
            changed = changed.model_copy(update={"source": source})
            changed = check_stream(changed, ctx.settings)
        _check_lateness(changed)
        changed.to_stream()
        return changed

    if changes.keys() & {"ttl", "latest"}:
        activations, now = await ctx.store.activations(), ctx.clock()

        async def follow(
            streams: dict[str, StreamRecord], queries: list[QueryRecord]
        ) -> list[QueryRecord]:
            assert before is not None
            wanted = readers(name, queries, activations, now)
            given = usable_streams(streams.values()), ctx.store.forms, before
            return await ctx.work.read(replanned, name, wanted, *given)

        record = await ctx.store.update_stream_and_readers(name, change, follow)
    else:
        record = await ctx.store.update_stream(name, change)
    return await _shown(ctx, known(record, "stream", name), response)


@router.post("/{name}:reread", status_code=202)
@needs(Need.EDIT)
async def reread_stream(
    name: StreamPath, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> StreamOut:
    """Read a table again from the beginning of its source, as a new version. Queries look up the
    previous version until the new one is complete. Another request before that starts over. 409 for
    streams that are not tables, sources that can't be read again, and tables that queries follow.
    """
    activations, now = await ctx.store.activations(), ctx.clock()

    def change(record: StreamRecord) -> StreamRecord:
        check_version(record, if_match)
        check_reread(record, ctx.settings.mode)
        return record.model_copy(update={"version": record.version + 1})

    async def follow(
        streams: dict[str, StreamRecord], queries: list[QueryRecord]
    ) -> list[QueryRecord]:
        wanted = readers(name, queries, activations, now)
        await ctx.work.read(check_followers, name, wanted, streams, ctx.store.forms)
        return []

    record = await ctx.store.update_stream_and_readers(name, change, follow)
    return await _shown(ctx, known(record, "stream", name), response)


@router.post("/{name}/rows", status_code=202)
@needs(Need.PUSH)
async def push_rows(
    name: StreamPath,
    body: RowsIn,
    ctx: Ctx,
    request: Request,
    response: Response,
    idempotency_key: IdempotencyKey = None,
) -> RowsOut:
    """Append rows to a stream of format ``redis-stream``: all, or none if any is invalid.

    429 while a million rows of the stream wait to be read.
    """
    record = known(await ctx.store.stream(name), "stream", name)
    key, payload, field = target(record, Keys(ctx.settings.namespace).stream(name))
    check_push(key, ctx.settings)
    try:
        rows = read_rows(record, await request.body())
    except ValidationError as cause:
        found = cause.errors(include_url=False)[:REPORTED]
        raise RequestValidationError([{**e, "loc": ("body", *e["loc"])} for e in found]) from None
    check_backlog(name, await ctx.store.intake(name))
    pushed = Pushed(name, key, entries(rows, payload, field))
    headers = await append(ctx.store, pushed, await request.body(), idempotency_key)
    response.headers.update(headers)
    return RowsOut(rows=len(rows))


@router.get("/{name}/sample")
@needs(Need.READ)
async def get_sample(name: StreamPath, ctx: Ctx) -> SampleOut:
    """Statistics of a stream's columns, from a uniform sample of its tuples."""
    known(await ctx.store.stream(name), "stream", name)
    sample = await ctx.store.sample(name)
    if sample is None:
        raise NotFound(
            "no-sample",
            f"no tuples of stream {name!r} have been sampled",
            field="name",
            remedy="the first sample is published at the end of the first epoch that reads it",
        )
    return sample_out(name, sample)


@router.delete("/{name}", status_code=204)
@needs(Need.EDIT)
async def delete_stream(name: StreamPath, ctx: Ctx, if_match: IfMatch = None) -> None:
    """Delete a stream; 409 while a live query reads it. Without a running runtime, which alone can
    end queries, withdrawn queries do not count as live."""
    activations, progress = await ctx.store.activations(), await ctx.store.progress()
    now = ctx.clock()
    runs = await ctx.store.heartbeat() is not None
    blocking = await ctx.store.delete_stream(
        name,
        lambda queries: _users(name, queries, activations, progress, now, runs=runs),
        lambda record: check_version(record, if_match),
    )
    if known(blocking, "stream", name):
        raise Conflict(
            "stream-in-use",
            f"stream {name!r} is used by " + ", ".join(blocking or ()),
            field="name",
            remedy="delete these queries, and wait until they have expired or stop the pipeline",
        )


async def _check_name(ctx: Context, record: StreamRecord) -> None:
    """Refuse a request for a stream with the name of a live query, or of a query that is read.

    Raises:
        Conflict: ``name-of-query``.
    """
    found = await ctx.store.stream(record.name)
    taken = found is not None and is_query(found)
    if not taken and await ctx.store.has_query(record.name):
        queries = await ctx.store.known_queries(ctx.clock(), ctx.settings.mode)
        taken = queries.find(record.name) is not None
    if taken:
        raise Conflict(
            "name-of-query",
            f"there is a query {record.name!r}, and a query is a stream of its name to other "
            "queries",
            field="name",
            remedy="choose another name",
        )


async def _shown(ctx: Context, record: StreamRecord, response: Response) -> StreamOut:
    response.headers["ETag"] = etag(record)
    progress, last = await ctx.store.progress(), await ctx.store.last_snapshot()
    return stream_out(record, progress, await ctx.store.sources(), last)


async def _tried(ctx: Context, record: StreamRecord, seconds: float) -> None:
    """Wait until the runtime, if it is running, has tried to read the source of ``record``. No wait
    in step mode, in which the runtime opens one source after the other."""
    if ctx.settings.mode is Mode.STEP:
        return
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        sources = await ctx.store.sources()
        if not sources.alive or sources.status(record).state is not SourceState.NOT_TRIED:
            return
        await asyncio.sleep(LOOK_SECONDS)


def read_stream(body: StreamIn, settings: ServiceSettings) -> StreamRecord:
    """Convert a request into the record of a new stream, and check it.

    Raises:
        InvalidInput: an invalid type, event time, lateness, time-out or other property.
        StreamError: the columns contradict each other.
    """
    body = with_catalog(body, settings)
    check_columns(len(body.columns), settings)
    columns = []
    for name, text in body.declared:
        try:
            columns.append(ColumnRecord(name=name, type=str(parse_type(text))))
        except PlannerError as cause:
            raise InvalidInput(
                cause.code, cause.message, field=f"columns.{name}", remedy=cause.remedy
            ) from None
    changes = _changes(body)
    if changes is not None and changes.operation is not None:
        columns = _with_operation(columns, changes.operation)
    record = StreamRecord(
        name=body.name,
        columns=tuple(columns),
        event_time=body.event_time,
        lateness=_stream_lateness(body),
        idle_timeout=_idle_timeout(body.idle_timeout),
        **body.model_dump(include=PROPERTIES),
        **_bounds_ahead(body),
        **_kept(body),
        kind=StreamKind(body.kind),
        changes=changes,
        source=body.source,
    )
    record = check_stream(record, settings)
    source = record.source
    check_nested(record.tuple_columns, source.format, source.path, source.options)
    _check_lateness(record)
    return record


def _changes(body: StreamIn) -> ChangeFormat | None:
    """Return the form of the rows of a stream of changes or upserts; None for any other stream."""
    given, kind = body.changes, StreamKind(body.kind)
    keyed, name = kind is StreamKind.UPSERT, f"stream {body.name!r}"
    if kind not in (StreamKind.CHANGES, StreamKind.UPSERT):
        if given is None:
            return None
        raise InvalidInput(
            "changes-without-kind",
            f"{name} is of kind {body.kind}, whose rows neither insert nor delete",
            field="changes",
            remedy="give kind changes or upsert, or leave changes out",
        )
    given = given or ChangesIn()
    operation = given.operation
    followed = body.source.format in (POSTGRES, *LAKE)
    if operation is None and (not keyed or given.envelope or followed):
        operation = OPERATION
    if operation is None and (given.inserts or given.deletes):
        raise InvalidInput(
            "operations-without-column",
            f"{name} has operations, and no column that they are in",
            field="changes.operation",
            remedy="name the column of the operation",
        )
    both = {t.lower() for t in given.inserts} & {t.lower() for t in given.deletes}
    if both:
        raise InvalidInput(
            "ambiguous-operation",
            f"the operation {min(both)!r} both inserts and deletes",
            field="changes.deletes",
            remedy="name it once",
        )
    key, source = tuple(body.key or ()), body.source
    columns = body.columns if isinstance(body.columns, dict) else [c.name for c in body.columns]
    if given.null_deletes and (not keyed or not {*columns} - {operation, *key}):
        raise InvalidInput(
            "null-deletes-without-values",
            f"{name} has no rows whose values beside a key are NULL",
            field="changes.null_deletes",
            remedy="leave null_deletes out: it is for kind upsert, with columns beside the key",
        )
    # The form of rows in a table of a lake is fixed, so these sources are left out.
    parts = [p for p in (source, source.then) if p and not (source.then and p.format in LAKE)]
    if given.envelope and not all(is_json(p.format, p.path, p.options) for p in parts):
        raise InvalidInput(
            "envelope-without-json",
            f"a source of format {source.format} is not read as JSON envelopes",
            field="changes.envelope",
            remedy="give a source of JSON files, Kafka topics by the option topics, or a Redis "
            "Stream of JSON texts, or unwrap the envelopes before (ExtractNewRecordState) and "
            "name the operation column",
        )
    return ChangeFormat(
        operation,
        tuple(given.inserts),
        tuple(given.deletes),
        None if given.envelope is None else Envelope(given.envelope),
        key if keyed else (),
        given.null_deletes,
    )


def _with_operation(columns: list[ColumnRecord], name: str) -> list[ColumnRecord]:
    """Return ``columns`` with a change stream's operation column, a string unless declared."""
    kind = next((parse_type(c.type).kind for c in columns if c.name == name), None)
    if kind is None:
        return [*columns, ColumnRecord(name=name, type=TypeKind.STRING)]
    if kind not in {TypeKind.STRING, TypeKind.BOOLEAN, *INTEGRAL}:
        raise InvalidInput(
            "bad-operation",
            f"the operation column {name!r} is of type {kind}",
            field=f"columns.{name}",
            remedy="declare it as a string, a boolean or an integer",
        )
    return columns


def _stream_lateness(body: StreamIn) -> int | None:
    text = body.lateness
    if text is not None and text.strip().lower() == "unbounded":
        return None
    if body.event_time is None:
        if text is None:
            return None
        raise InvalidInput(
            "lateness-without-event-time",
            f"stream {body.name!r} has no event time, so it can't have a lateness",
            field="lateness",
            remedy="declare event_time, or leave lateness out",
        )
    if text is None and StreamKind(body.kind) in (StreamKind.CHANGES, StreamKind.UPSERT):
        return None  # a delete has the event time of its tuple
    return read_duration(DEFAULT_LATENESS if text is None else text, "lateness")


def _bounds_ahead(body: StreamIn) -> dict[str, int | None]:
    """Return the bounds on event times in the future for a new stream. With a watermark there are
    defaults: a single tuple of the far future would move the watermark past all others."""
    bounded = body.event_time is not None and _stream_lateness(body) is not None
    given = {field: getattr(body, field) for field in AHEAD}
    return {
        field: _ahead_bound(default if given[field] is None else given[field], field)
        for field, default in AHEAD.items()
        if bounded or given[field] is not None
    }


def _ahead_bound(text: str, field: str) -> int | None:
    if text.strip().lower() == "unbounded":
        return None
    return read_positive(
        text,
        field,
        "bad-bound",
        "no event time could ever be greater than the last",
        "give a positive duration, or unbounded",
    )


def _idle_timeout(text: str | None) -> int | None:
    if text is None:
        return None
    return read_positive(
        text,
        "idle_timeout",
        "bad-idle-timeout",
        "a time-out of nothing: every stream would always be idle",
        "give a positive duration, or leave it out",
    )


def _retention(retention: RetentionIn | None) -> dict[str, Any]:
    """Return the changes of ``ttl`` and ``latest`` in a request; None resets both."""
    if retention is None:
        return {"ttl": None, "latest": ()}
    found: dict[str, Any] = {}
    if "ttl" in retention.model_fields_set:
        ttl = retention.ttl
        found["ttl"] = None if ttl is None else read_duration(ttl, "retention.ttl")
    if "latest" in retention.model_fields_set:
        found["latest"] = tuple(retention.latest or ())
    return found


def _kept(body: StreamIn) -> dict[str, Any]:
    """Return the retention of a new stream, or the key of a new table, which retains all rows."""
    kind = StreamKind(body.kind)
    if kind in (StreamKind.STREAM, StreamKind.CHANGES):
        if body.key is not None:
            raise InvalidInput(
                "key-without-table",
                f"stream {body.name!r} is of kind {kind}, which has no key",
                field="key",
                remedy="give kind table or upsert; retention.latest keeps the latest of a stream's "
                "tuples",
            )
        retain = body.retain or ("all" if kind is StreamKind.CHANGES else "none")
        return {**_retention(body.retention), "retain": _retain(retain)}
    if body.retention is not None:
        raise InvalidInput(
            "table-property",
            f"{kind} {body.name!r} can't have a retention: all of its rows are kept, or the last "
            "of each key",
            field="retention",
            remedy="leave retention out; key names the columns of its key",
        )
    latest = tuple(body.key or ()) if kind is StreamKind.TABLE else ()
    return {"latest": latest, "retain": _retain(body.retain or "all")}


def _retain(text: str) -> int | None:
    """Parse ``retain`` of a stream's request to microseconds; None means for ever."""
    given = text.strip().lower()
    if given in RETAIN:
        return RETAIN[given]
    return read_positive(
        text,
        "retain",
        "bad-retain",
        "a duration of nothing retains nothing",
        "give all, none, or a positive duration",
    )


def _check_lateness(record: StreamRecord) -> None:
    """Refuse properties that need an event time or a watermark, in a stream without it."""
    timeless = record.event_time is None
    wrong: tuple[str, str, str] | None = None
    if record.idle_timeout is not None and (timeless or record.lateness is None):
        lacks = "watermark that a time-out could move"
        wrong = "idle-timeout-without-watermark", lacks, "idle_timeout"
    for field in AHEAD:
        if getattr(record, field) is not None and timeless:
            wrong = wrong or ("ahead-without-event-time", "event time", field)
    if wrong is not None:
        code, lacks, field = wrong
        bounded = " with a bounded lateness" if field == "idle_timeout" else ""
        raise InvalidInput(
            code,
            f"stream {record.name!r} has no {lacks}",
            field=field,
            remedy=f"declare event_time{bounded}, or leave {field} out",
        )


def _users(
    name: str,
    queries: list[QueryRecord],
    activations: Mapping[str, Activation],
    progress: Progress | None,
    now: datetime,
    *,
    runs: bool,
) -> list[str]:
    """Return the live queries over a stream, which prevent its deletion. Without a running runtime
    (not ``runs``) withdrawn queries can't end, and do not count."""
    past = {q.id for q in overtaken(queries, now)}
    found = {
        query_of(q.id): None
        for q in queries
        if reads(q, name)
        and q.id not in past
        and status_of(q, activations.get(q.id), progress, now) in LIVE
        and (runs or q.wanted(now) or (q.paused_at is not None and not q.is_over(now)))
    }
    return list(found)
