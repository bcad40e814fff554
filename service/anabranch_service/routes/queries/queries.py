"""``/v1/queries``: register, show, change and end continuous queries."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Annotated

from fastapi import Query, Response

from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.queries import QueryIn, QueryOut, QueryPatch
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.errors import Conflict, known
from anabranch_service.parameters import RunPath
from anabranch_service.presenters.records import query_out
from anabranch_service.registry.lifecycle import GOING_ON, status_of
from anabranch_service.registry.records import QueryRecord
from anabranch_service.routes.queries.registration import (
    begin,
    change_and_end_earlier,
    check_needs,
    check_unchanged,
    expiry,
    known_queries,
    register,
    shown,
    until_current,
    updated,
    waiting_run,
)
from anabranch_service.streaming.pushing import IdempotencyKey, reused
from anabranch_service.versions import IfMatch, check_version, etag

router = guarded_router("/v1/queries", tag="queries")


@router.post("", status_code=201, response_model=QueryOut)
@needs(Need.EDIT)
async def add_query(
    body: QueryIn, ctx: Ctx, response: Response, idempotency_key: IdempotencyKey = None
) -> QueryOut | Response:
    """Register a query; it is planned at the next epoch boundary.

    With the name of an ended query, the registration is another run of that query.
    """
    digest = hashlib.sha256(body.model_dump_json().encode()).hexdigest()
    key, now = idempotency_key or "", ctx.clock()

    async def attempt() -> QueryOut | Response:
        kept = await ctx.store.kept_answer(key) if key else None
        if kept is not None:
            return _kept(kept, digest)
        run = await begin(ctx, body, now)
        record, name = run.record, query_of(run.record.id)
        progress, sources = await ctx.store.progress(), await ctx.store.sources()
        answer = query_out(record, None, progress, sources, now, parts=run.parts_now)
        shown_as = {"digest": digest, "id": name, "body": answer.model_dump(mode="json")}
        text = json.dumps(shown_as)
        added = await register(ctx, [run], idempotency_key=key, answer=text)
        if added.outcome == "seen":
            return _kept(added.answer, digest)
        response.headers["Location"] = f"/v1/queries/{name}"
        response.headers["ETag"] = etag(record)
        return answer

    try:
        return await until_current(attempt)
    except Conflict:
        # The conflict may be with the query of an equal request, registered meanwhile.
        kept = await ctx.store.kept_answer(key) if key else None
        if kept is None:
            raise
        return _kept(kept, digest)


@router.get("/{name}")
@needs(Need.READ)
async def get_query(name: RunPath, ctx: Ctx, response: Response) -> QueryOut:
    """One query: normal form, status and number of results."""
    return await shown(ctx, known(await ctx.store.query(name), "query", name), response)


@router.patch("/{name}")
@needs(Need.EDIT)
async def patch_query(
    name: RunPath, body: QueryPatch, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> QueryOut:
    """Change a query's expiry, priority, service levels, title, owner or tags."""
    now = ctx.clock()
    changes: dict[str, object] = {}
    if body.ttl is not None or body.expires_at is not None:
        changes["expires_at"] = expiry(body.ttl, body.expires_at, now)
    elif "expires_at" in body.model_fields_set:
        changes["expires_at"] = None
    changes |= {n: getattr(body, n) for n in ("title", "owner") if n in body.model_fields_set}
    given = {"priority": body.priority, "tags": body.tags}
    changes |= {name: value for name, value in given.items() if value is not None}

    async def attempt() -> QueryOut:
        seen = await ctx.store.runs_of(query_of(name))
        found = known(await ctx.store.query(name), "query", name)
        waiting, activation = await waiting_run(ctx, found), await ctx.store.activation(found.id)
        progress = await ctx.store.progress()

        async def check() -> None:
            if body.slo is not None:
                await check_needs(ctx, found, body.slo)

        def decide(records: Sequence[QueryRecord]) -> list[QueryRecord]:
            check_unchanged(records, seen)
            check_version(found, if_match)
            if status_of(found, activation, progress, now) not in GOING_ON:
                raise Conflict(
                    "query-ended",
                    f"query {name!r} has been withdrawn, rejected, or has failed or expired",
                    field="name",
                    remedy="register it again; its name is free once it has ended",
                )
            if "slo" in body.model_fields_set:
                changes["slo"] = found.slo.changed(body.slo)
            return updated(records, [found, waiting], changes)

        await ctx.store.change_queries(decide, check)
        return await shown(ctx, found.model_copy(update=changes), response)

    return await until_current(attempt)


@router.delete("/{name}", status_code=202)
@needs(Need.EDIT)
async def delete_query(
    name: RunPath,
    ctx: Ctx,
    response: Response,
    if_match: IfMatch = None,
    cascade: Annotated[
        bool,
        Query(description="Also end the queries that read this query, directly or through others."),
    ] = False,
) -> QueryOut:
    """End a query: it expires with the next planned epoch, and its results stay. Idempotent.

    409 while other queries read it, without ``cascade``.
    """
    now, queries = ctx.clock(), await known_queries(ctx)

    def change(record: QueryRecord) -> QueryRecord:
        if record.removed_at is not None:
            return record
        check_version(record, if_match)
        return record.model_copy(update={"removed_at": now})

    found = known(await ctx.store.query(name), "query", name)

    def named(runs: Sequence[QueryRecord]) -> QueryRecord | None:
        newest = [
            run
            for run in runs
            if run.id == found.id or (name == query_of(run.id) and not run.waits)
        ]
        return newest[-1] if newest else None

    query = query_of(found.id)

    def readers(records: Sequence[QueryRecord], chosen: QueryRecord) -> list[QueryRecord]:
        here = replace(queries, records=records)
        if here.status(chosen) not in GOING_ON:
            return []
        if not cascade:
            here.check_unread(query, "deleted")
        several = set(here.all_readers(query))
        return [one for one in records if query_of(one.id) in several]

    changed = await change_and_end_earlier(ctx, query, change, now, named, readers)
    record = known(changed, "query", name)
    return await shown(ctx, record, response)


def _kept(text: str, digest: str) -> Response:
    """Return the stored answer to an earlier request with the same idempotency key and body."""
    kept = json.loads(text)
    if kept["digest"] != digest:
        raise reused()
    return Response(
        json.dumps(kept["body"]),
        201,
        {"Location": f"/v1/queries/{kept['id']}", "Idempotency-Replayed": "true"},
        "application/json",
    )
