"""``/v1/queries/{name}``: replace, pause and resume queries, and list their runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Annotated

from fastapi import Query, Response

from anabranch_contract.queries.joins import Stream
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.queries import QueryChange, QueryIn, QueryOut, RunList
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.errors import Conflict, InvalidInput, known
from anabranch_service.parameters import QueryPath
from anabranch_service.presenters.records import run_out
from anabranch_service.registry.derived import Queries
from anabranch_service.registry.lifecycle import GOING_ON, LIVE, Status, present_run
from anabranch_service.registry.records import QueryRecord
from anabranch_service.routes.queries.registration import (
    Beginning,
    body_of,
    change_and_end_earlier,
    check_needs,
    check_unchanged,
    expiry,
    known_queries,
    past_of,
    prepare,
    read_body,
    register,
    shown,
    status_now,
    until_current,
    updated,
    waiting_run,
)
from anabranch_service.settings import ServiceSettings
from anabranch_service.versions import IfMatch, check_version

router = guarded_router("/v1/queries", tag="queries")

#: Fields of a query that can be changed without a new run.
_SETTINGS = ("expires_at", "priority", "slo", "title", "owner", "tags")


@router.put("/{name}")
@needs(Need.EDIT)
async def put_query(
    name: QueryPath,
    body: QueryIn,
    ctx: Ctx,
    response: Response,
    if_match: IfMatch = None,
    dry_run: Annotated[
        bool, Query(description="Check the change and return it. Stores nothing.")
    ] = False,
) -> QueryChange:
    """Make a query equal to the body: register it, change its settings, or replace its run.

    A changed statement, window or sink begins another run at the next epoch; until then the present
    run continues, with `cutover: when-complete` until the new run has caught up. The body of a run
    that waits for that changes nothing, or with `cutover: at-once` ends the wait; the body of the
    present run withdraws it. Stores that both need are kept. Idempotent.
    """
    if body.name is not None and body.name != name:
        raise InvalidInput(
            "bad-id",
            f"the body's name is {body.name!r}, the path's {name!r}",
            field="name",
            remedy="leave it out of the body",
        )
    attempt = partial(_put, name, body, ctx, response, if_match, dry_run=dry_run)
    return await until_current(attempt)


async def _put(
    name: str,
    body: QueryIn,
    ctx: Context,
    response: Response,
    if_match: str | None,
    *,
    dry_run: bool,
) -> QueryChange:
    """Do the same as :func:`put_query`; raise :class:`Stale` if other requests have meanwhile
    changed the query, or streams or queries that it reads."""
    now, version = ctx.clock(), await ctx.store.version()
    seen = await ctx.store.runs_of(query_of(name))
    before, run = await ctx.store.query_and_next(name)
    state = None if before is None else await status_now(ctx, before)
    if before is None or state not in LIVE:
        if if_match is not None:
            check_version(known(before, "query", name), if_match)
        begun = await prepare(ctx, run, body, now, version, before)
        if not dry_run:
            await register(ctx, [begun])
        return await _begun(ctx, begun, "created", sorted(_given(body)), response, dry_run=dry_run)
    check_version(before, if_match)
    streams, queries = await ctx.store.usable_streams(), await known_queries(ctx)
    terms = await ctx.work.read(_terms, name, body, ctx.settings, streams, queries)
    # A ttl counts from the beginning of a run, so that repeating a request does not move the
    # expiry.
    until = before.expires_at if body.ttl is not None else expiry(None, body.expires_at, now)
    settings = {n: getattr(body, n) for n in _SETTINGS} | {"expires_at": until}
    waiting = await waiting_run(ctx, before)

    def differing(one: QueryRecord) -> list[str]:
        return [n for n, new in (terms | settings).items() if new != getattr(one, n)]

    async def change(*changes: tuple[QueryRecord | None, Mapping[str, object]]) -> None:
        """Change runs of the query, unless they have been changed meanwhile."""

        def decide(records: Sequence[QueryRecord]) -> list[QueryRecord]:
            check_unchanged(records, seen)
            return [one for run, given in changes for one in updated(records, [run], given)]

        await ctx.store.change_queries(decide)

    if waiting is not None and not terms.keys() & set(differing(waiting)):
        # The body equals the run that waits for a cutover.
        fields = [n for n, new in settings.items() if new != getattr(waiting, n)]
        at_once = body.cutover == "at-once" and not waiting.caught_up
        ends_wait = {"caught_up": True} if at_once else {}
        record = waiting
        if not dry_run:
            await change((before, settings), (waiting, settings | ends_wait))
            record = waiting.model_copy(update=settings | ends_wait)
        action = "replaced" if at_once else "changed" if fields else "none"
        fields += ["cutover"] if at_once else []
        query = await shown(ctx, record, response)
        return _changed(action, fields, query, response, dry_run=dry_run)
    fields = differing(before)
    withdrawn = (waiting, {"removed_at": now})
    if state in GOING_ON and not terms.keys() & set(fields):
        if waiting is not None:
            fields = [*(n for n in differing(waiting) if n in terms), *fields]
        if "slo" in fields:
            await check_needs(ctx, before, body.slo)
        record = before
        if fields and not dry_run:
            await change((before, settings), withdrawn)
            record = before.model_copy(update=settings)
        query = await shown(ctx, record, response)
        return _changed("changed" if fields else "none", fields, query, response, dry_run=dry_run)
    if state is Status.PAUSED:
        raise Conflict(
            "query-paused",
            f"query {name!r} is paused, and what it computes would change: {', '.join(fields)}",
            field="name",
            remedy=f"resume it first: POST /v1/queries/{name}:resume",
        )
    queries.check_unread(name, "replaced")
    # Before its present run has begun, a query has no results that readers would lose.
    waits = body.cutover == "when-complete" and state is Status.ACTIVE
    begun = await prepare(ctx, run, body, now, version, before, waits=waits)
    if not dry_run:
        await register(ctx, [begun])
        if waiting is not None:
            await _withdraw(ctx, waiting)
    return await _begun(ctx, begun, "replaced", fields, response, dry_run=dry_run)


async def _withdraw(ctx: Context, run: QueryRecord) -> None:
    """Withdraw a run in whose place another one has been registered."""
    now = ctx.clock()
    await ctx.store.update_query(
        run.id, lambda one: one.model_copy(update={"removed_at": one.removed_at or now})
    )


@router.post("/{name}:pause", status_code=202)
@needs(Need.EDIT)
async def pause_query(
    name: QueryPath, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> QueryOut:
    """Pause a query: from the next epoch on it produces no results and is not planned.

    Its registration, results and sink are kept. Idempotent.
    """
    known(await ctx.store.query(name), "query", name)
    found = known(present_run(await ctx.store.runs_of(name)), "query", name)
    if await status_now(ctx, found) not in LIVE:
        raise _ended(name)
    now = ctx.clock()

    def change(record: QueryRecord) -> QueryRecord:
        if record.paused_at is not None or record.removed_at is not None:
            return record
        check_version(record, if_match)
        return record.model_copy(update={"paused_at": now})

    queries = await known_queries(ctx)

    def unread(records: Sequence[QueryRecord], chosen: QueryRecord) -> list[QueryRecord]:
        if chosen.paused_at is None and chosen.removed_at is None:
            replace(queries, records=records).check_unread(name, "paused")
        return []

    changed = await change_and_end_earlier(ctx, name, change, now, present_run, unread)
    record = known(changed, "query", name)
    if record.removed_at is not None:
        raise _ended(name)
    return await shown(ctx, record, response)


@router.post("/{name}:resume", status_code=202)
@needs(Need.EDIT)
async def resume_query(
    name: QueryPath, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> QueryOut:
    """Resume a paused query: another run begins with the next epoch.

    It sees the same earlier tuples as a query registered now would (``complete`` and
    ``visible_from``). Resuming a running query changes nothing.
    """
    return await until_current(partial(_resume, name, ctx, response, if_match))


async def _resume(name: str, ctx: Context, response: Response, if_match: str | None) -> QueryOut:
    """Do the same as :func:`resume_query`; raise :class:`Stale` in the same cases as `_put`."""
    version = await ctx.store.version()
    before, run = await ctx.store.query_and_next(name)
    known(before, "query", name)
    found = known(present_run(await ctx.store.runs_of(name)), "query", name)
    check_version(found, if_match)
    if found.paused_at is None:
        if await status_now(ctx, found) in GOING_ON:
            return await shown(ctx, found, response)
        raise _ended(name)
    now = ctx.clock()
    if found.is_over(now):
        raise _ended(name)
    begun = await prepare(ctx, run, body_of(found), now, version, found)
    resumed = begun.record.model_copy(update={"resumed": True})
    begun = replace(begun, record=resumed)
    await register(ctx, [begun])
    await _withdraw(ctx, found)
    return await _as_begun(ctx, begun, response)


@router.get("/{name}/runs")
@needs(Need.READ)
async def list_runs(name: QueryPath, ctx: Ctx) -> RunList:
    """The runs of a query, oldest first."""
    known(await ctx.store.query(name), "query", name)
    activations, progress = await ctx.store.activations(), await ctx.store.progress()
    now = ctx.clock()
    return RunList(
        items=[
            run_out(run, activations.get(run.id), progress, now)
            for run in await ctx.store.runs_of(name)
        ]
    )


def _terms(
    name: str,
    body: QueryIn,
    settings: ServiceSettings,
    streams: Mapping[str, Stream],
    queries: Queries,
) -> dict[str, object]:
    """Return the fields whose change requires a new run: statement, window, sink and ``past``."""
    reading = read_body(body, streams, settings, queries, name)
    statement, streams = reading.statement, reading.streams
    return {
        "sql": statement.sql,
        "query": body.query,
        "window": body.window,
        "sink": body.sink,
        "past": past_of(body, statement.normalise("", streams), streams),
    }


async def _begun(
    ctx: Context,
    begun: Beginning,
    action: str,
    fields: list[str],
    response: Response,
    *,
    dry_run: bool,
) -> QueryChange:
    """Make the answer to a request that has registered a run or, with ``dry_run``, checked it."""
    query = None
    if dry_run:
        before = await ctx.store.query(query_of(begun.record.id))
        if before is not None:
            query = await shown(ctx, before, response)
    else:
        query = await _as_begun(ctx, begun, response)
    return _changed(action, fields, query, response, dry_run=dry_run)


def _changed(
    action: str, fields: list[str], query: QueryOut | None, response: Response, *, dry_run: bool
) -> QueryChange:
    version = response.headers.get("ETag")
    return QueryChange(action=action, fields=fields, dry_run=dry_run, query=query, version=version)


async def _as_begun(ctx: Context, begun: Beginning, response: Response) -> QueryOut:
    """Return the answer to a request that has just registered a run."""
    name = begun.record.id
    return await shown(ctx, known(await ctx.store.run(name), "query", name), response)


def _given(body: QueryIn) -> set[str]:
    return body.model_fields_set - {"name", "dialect", "parameters"}


def _ended(name: str) -> Conflict:
    return Conflict(
        "query-ended",
        f"query {name!r} has ended, or is ending",
        field="name",
        remedy="register it again",
    )
