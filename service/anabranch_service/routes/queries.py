"""``/v1/queries``: register, follow, change and end continuous queries."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from functools import partial
from typing import Annotated
from uuid import uuid4

from fastapi import Header, Query, Response

from anabranch_contract.codec import to_json
from anabranch_contract.connectors.addresses import parse_path
from anabranch_contract.connectors.policy import AccessError
from anabranch_contract.connectors.sinks import SinkKind, check_sink, target
from anabranch_contract.errors import PlannerError
from anabranch_contract.protocol.activations import joined_rows
from anabranch_contract.queries.joins import JoinQuery, Stream
from anabranch_contract.queries.outer_joins import LEFT_SUFFIX
from anabranch_contract.queries.views import change_columns
from anabranch_contract.rest.queries import QueryIn, QueryList, QueryOut, QueryPatch, SinkRecord
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.durations import read_positive
from anabranch_service.errors import Conflict, InvalidInput, known
from anabranch_service.planning.request import read_registered
from anabranch_service.planning.sharing import share_filters
from anabranch_service.presenters.records import floors_of, query_out, sink_out
from anabranch_service.registry.describe import describe
from anabranch_service.registry.lifecycle import LIVE, Status, is_wanted, status_of
from anabranch_service.registry.permitted import check_sink_request
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.sizes import check_columns, check_room, read_checked
from anabranch_service.registry.slo import check_slo
from anabranch_service.registry.statements import Statement, usable_streams
from anabranch_service.settings import Settings
from anabranch_service.versions import IfMatch, check_version, etag

router = guarded_router("/v1/queries", tag="queries")

IdempotencyKey = Annotated[
    str | None,
    Header(
        min_length=1,
        max_length=256,
        description="The same key with the same body gives the same answer for a day.",
    ),
]


@router.post("", status_code=201, response_model=QueryOut)
@needs(Need.EDIT)
async def add_query(
    body: QueryIn, ctx: Ctx, response: Response, idempotency_key: IdempotencyKey = None
) -> QueryOut | Response:
    """Register a query; it is planned at the next epoch boundary."""
    digest = hashlib.sha256(body.model_dump_json().encode()).hexdigest()
    if idempotency_key:
        kept = await ctx.store.kept_answer(idempotency_key)
        if kept is not None:
            return _kept(kept, digest)
    now = ctx.clock()
    name = body.id or f"q-{uuid4().hex[:12]}"
    snapshot = await ctx.store.last_snapshot()
    found = await read_registered(ctx.store, ctx.settings, now, snapshot, foreseen=False)
    check_room("queries", len(found.wanted), ctx.settings.max_queries)
    streams = usable_streams(found.streams.values())
    most = ctx.settings.max_aliases
    async with ctx.work.limited() as deadline:
        statement, query = await ctx.work.read(_read, name, body, streams, ctx.settings)
        query, relaxed = await share_filters(
            query, statement, found, ctx.store.forms, ctx.work, deadline, most_aliases=most
        )
        meaning = await ctx.work.read(describe, query, streams)
    await _check_target(ctx, body.sink)
    record = QueryRecord(
        id=name,
        sequence=await ctx.store.next_sequence(),
        created_at=now,
        sql=statement.sql,
        query=body.query,
        window=body.window,
        expires_at=_expiry(body.ttl, body.expires_at, now),
        sink=body.sink,
        priority=body.priority,
        slo=body.slo,
        normalised=meaning,
        relaxed={alias: to_json(kept) for alias, kept in relaxed.items()},
    )
    answer = query_out(record, None, None, await ctx.store.sources(), now)
    kept_text = json.dumps({"digest": digest, "id": name, "body": answer.model_dump(mode="json")})
    added = await ctx.store.add_query(
        record, idempotency_key=idempotency_key or "", answer=kept_text
    )
    if added.outcome == "seen":
        return _kept(added.detail, digest)
    if added.outcome == "duplicate":
        raise Conflict(
            "duplicate-query",
            f"a query {name!r} is registered already (ids are never used again)",
            field="id",
            remedy="choose another id, or leave it out to have one made",
        )
    if added.outcome == "gone":
        raise Conflict(
            "unknown-stream",
            f"stream {added.detail!r} was deleted meanwhile",
            field="sql" if body.sql is not None else "query",
            remedy="register the stream again",
        )
    ctx.store.forms.keep(record, query, streams)
    response.headers["Location"] = f"/v1/queries/{name}"
    if await _is_understood(ctx, record, streams):
        response.headers["ETag"] = etag(record)
        return answer
    return await get_query(name, ctx, response)


@router.get("")
@needs(Need.READ)
async def list_queries(
    ctx: Ctx,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    cursor: Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")] = None,
    status: Status | None = None,
) -> QueryList:
    """Queries in order of registration."""
    activations, progress = await ctx.store.activations(), await ctx.store.progress()
    sources, now = await ctx.store.sources(), ctx.clock()
    floors = floors_of(progress, await ctx.store.rations())
    after = int(cursor) if cursor is not None else -1
    page: list[QueryRecord] = []
    for record in await ctx.store.queries():
        if record.sequence <= after:
            continue
        state = status_of(record, activations.get(record.id), progress, now)
        if status is None or state is status:
            page.append(record)
    more = len(page) > limit
    page = page[:limit]

    def shown(record: QueryRecord) -> QueryOut:
        activation, joined = activations.get(record.id), joined_rows(activations, record.id)
        return query_out(record, activation, progress, sources, now, floors, joined)

    return QueryList(
        items=[shown(record) for record in page],
        next_cursor=str(page[-1].sequence) if more else None,
    )


@router.get("/{name}")
@needs(Need.READ)
async def get_query(name: str, ctx: Ctx, response: Response) -> QueryOut:
    """One query: what it means, its status, how many results it has given."""
    return await _view(ctx, known(await ctx.store.query(name), "query", name), response)


@router.patch("/{name}")
@needs(Need.EDIT)
async def patch_query(
    name: str, body: QueryPatch, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> QueryOut:
    """Change when a query expires, its priority, or what it needs."""
    now = ctx.clock()
    changes: dict[str, object] = {}
    if body.ttl is not None or body.expires_at is not None:
        changes["expires_at"] = _expiry(body.ttl, body.expires_at, now)
    elif "expires_at" in body.model_fields_set:
        changes["expires_at"] = None
    if body.priority is not None:
        changes["priority"] = body.priority
    await _check_needs(ctx, name, body)
    activation = await ctx.store.activation(name)

    def change(record: QueryRecord) -> QueryRecord:
        check_version(record, if_match)
        if not is_wanted(record, activation, now):
            raise Conflict(
                "query-ended",
                f"query {name!r} has been withdrawn, rejected, or has failed or expired",
                field="id",
                remedy="register it again under another id",
            )
        if "slo" in body.model_fields_set:
            changes["slo"] = record.slo.changed(body.slo)
        return record.model_copy(update=changes)

    return await _view(ctx, await _update(ctx, name, change), response)


@router.delete("/{name}", status_code=202)
@needs(Need.EDIT)
async def delete_query(
    name: str, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> QueryOut:
    """Withdraw a query; it expires at the next planned epoch. Repeating it changes nothing."""
    now = ctx.clock()

    def change(record: QueryRecord) -> QueryRecord:
        if record.removed_at is not None:
            return record
        check_version(record, if_match)
        return record.model_copy(update={"removed_at": now})

    return await _view(ctx, await _update(ctx, name, change), response)


async def _update(
    ctx: Context, name: str, change: Callable[[QueryRecord], QueryRecord]
) -> QueryRecord:
    return known(await ctx.store.update_query(name, change), "query", name)


def _read(
    name: str, body: QueryIn, streams: Mapping[str, Stream], settings: Settings
) -> tuple[Statement, JoinQuery]:
    """The query that a request gives, and its normal form; its sink is checked as well."""
    statement = read_checked(settings, body.sql, body.query, body.window, body.dialect)
    query = statement.normalise(name, streams)
    shown = "sql" if statement.sql is not None else "query.select"
    check_columns(len(query.shown), settings, "the results have", shown)
    check_sink_request(body.sink.to_sink(), settings)
    _check_sink(body.sink, query)
    check_slo(body.slo, query, streams)
    return statement, query


async def _check_needs(ctx: Context, name: str, body: QueryPatch) -> None:
    """Refuse a change of what a query needs that nothing could meet."""
    if body.slo is None:
        return
    record = known(await ctx.store.query(name), "query", name)
    streams = usable_streams((await ctx.store.streams()).values())
    try:
        query = await ctx.work.read(ctx.store.forms.of, record, streams)
    except PlannerError as cause:
        raise Conflict(
            "query-unreadable",
            f"query {name!r} can't be planned any more: {cause.message}",
            field="id",
            remedy="change its streams back, or register it again",
        ) from None
    check_slo(body.slo, query, streams)


async def _is_understood(ctx: Context, record: QueryRecord, streams: Mapping[str, Stream]) -> bool:
    """Whether the query still means what it was registered with.

    A stream that was changed meanwhile may have given it other bounds: then its record is changed.
    One that can't be planned any more is rejected with the next epoch, which says why.
    """
    used, before = {a.stream for a in record.normalised.aliases}, streams
    while True:
        now = usable_streams((await ctx.store.streams()).values())
        if all(now.get(s) == before[s] for s in used):
            return before is streams
        try:
            query = await ctx.work.read(ctx.store.forms.of, record, now)
            changes = {"normalised": await ctx.work.read(describe, query, now)}
        except PlannerError:
            return True
        await _update(ctx, record.id, partial(QueryRecord.model_copy, update=changes))
        before = now


async def _view(ctx: Context, record: QueryRecord, response: Response) -> QueryOut:
    response.headers["ETag"] = etag(record)
    names = [record.id]
    if record.normalised.outer is not None:
        names.append(record.id + LEFT_SUFFIX)
    known = {name: await ctx.store.activation(name) for name in names}
    activations = {name: found for name, found in known.items() if found is not None}
    progress, sources = await ctx.store.progress(), await ctx.store.sources()
    floors = floors_of(progress, await ctx.store.rations())
    activation, joined = activations.get(record.id), joined_rows(activations, record.id)
    return query_out(record, activation, progress, sources, ctx.clock(), floors, joined)


def _expiry(ttl: str | None, expires_at: datetime | None, now: datetime) -> datetime | None:
    """When a query expires: ``ttl`` from now, or at ``expires_at``."""
    if ttl is not None and expires_at is not None:
        raise InvalidInput(
            "ambiguous-expiry",
            "ttl and expires_at exclude each other",
            field="ttl",
            remedy="give one of them",
        )
    if ttl is not None:
        micros = read_positive(
            ttl, "ttl", "bad-expiry", "a ttl of nothing", "give a positive duration"
        )
        try:
            return now + timedelta(microseconds=micros)
        except OverflowError:
            raise InvalidInput(
                "bad-expiry",
                f"{ttl!r} from now is beyond the year 9999",
                field="ttl",
                remedy="leave it out: the query lives until it is deleted",
            ) from None
    if expires_at is not None and expires_at <= now:
        raise InvalidInput(
            "bad-expiry",
            f"{expires_at.isoformat()} is past",
            field="expires_at",
            remedy="give a time to come",
        )
    return expires_at


def _kept(text: str, digest: str) -> Response:
    """The answer kept under an idempotency key, if it belongs to the same body."""
    kept = json.loads(text)
    if kept["digest"] != digest:
        raise Conflict(
            "idempotency-key-reused",
            "this Idempotency-Key was used with another body",
            field="Idempotency-Key",
            remedy="use a new key for a new request",
        )
    answer = kept["body"]
    # An earlier release has kept plain secrets of sinks as they came.
    answer["sink"] = sink_out(SinkRecord.model_validate(answer["sink"])).model_dump(mode="json")
    return Response(
        json.dumps(answer),
        201,
        {"Location": f"/v1/queries/{kept['id']}", "Idempotency-Replayed": "true"},
        "application/json",
    )


def _check_sink(sink: SinkRecord, query: JoinQuery) -> None:
    """Refuse a sink that can't take what the query gives: results, or changes of its view."""
    post_join = query.view is not None or query.outer is not None
    if post_join and sink.to_sink().kind is SinkKind.COUNT:
        raise InvalidInput(
            "bad-sink",
            "the sink count keeps no rows, and views and outer joins are made of them",
            field="sink.format",
            remedy="leave it out",
        )
    columns = [(o.name, o.expr.type) for o in query.shown]
    if query.view is not None:
        columns = list(change_columns(query.view))
    check_sink(sink.to_sink(), [(name, str(kind)) for name, kind in columns])


async def _check_target(ctx: Context, sink: SinkRecord) -> None:
    """Refuse a sink that would mix a query's results with another's.

    A Redis Stream belongs to its query for ever, files only while it lives.
    """
    wanted = _target(sink)
    if wanted is None:
        return
    activations, progress = await ctx.store.activations(), await ctx.store.progress()
    for other in await ctx.store.queries():
        if _target(other.sink) != wanted:
            continue
        state = status_of(other, activations.get(other.id), progress, ctx.clock())
        if state in LIVE or sink.to_sink().kind is SinkKind.REDIS:
            raise Conflict(
                "sink-in-use",
                f"query {other.id!r} writes to {wanted!r}",
                field="sink",
                remedy="choose another place",
            )


def _target(sink: SinkRecord) -> str | None:
    """Where a sink writes to, links and ``..`` of a path followed."""
    spec = sink.to_sink()
    if spec.path is not None:
        with suppress(AccessError):
            place = parse_path(spec.path)
            if place.scheme == "file":
                spec = replace(spec, path=os.path.realpath(place.path))
    return target(spec)
