"""``POST /v1/queries:batch``: register many queries with one request."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from fastapi import Query

from anabranch_contract.errors import PlannerError, StructuredError
from anabranch_contract.rest.queries import (
    ProblemRecord,
    QueryBatchIn,
    QueryBatchItem,
    QueryBatchOut,
    QueryIn,
    QueryOut,
)
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.errors import Conflict, InvalidInput, SeveralInvalid
from anabranch_service.presenters.records import query_out
from anabranch_service.routes.queries.registration import (
    Beginning,
    begin,
    id_of,
    register,
    until_current,
)
from anabranch_service.routes.queries.sinks import target_of

router = guarded_router("/v1", tag="queries")

#: Errors that refuse one query of a batch; after other errors the whole request fails.
_OF_A_QUERY = (InvalidInput, Conflict, PlannerError)


@router.post("/queries:batch")
@needs(Need.EDIT)
async def add_queries(
    body: QueryBatchIn,
    ctx: Ctx,
    dry_run: Annotated[bool, Query(description="Only check the queries; store nothing.")] = False,
) -> QueryBatchOut:
    """Register many queries in order: all or none, or each valid one (``atomic: false``). They are
    planned at the next epoch boundary."""
    now = ctx.clock()

    async def together() -> list[QueryBatchItem]:
        checked = await _checked(ctx, body.queries, now)
        runs = [one for one in checked if isinstance(one, Beginning)]
        if body.atomic:
            _refuse(checked)
        if not dry_run:
            await register(ctx, runs)
        shown = iter(await _shown(ctx, runs, now))
        return [
            QueryBatchItem(query=next(shown), problem=None)
            if isinstance(one, Beginning)
            else _refused(one)
            for one in checked
        ]

    if body.atomic or dry_run:
        items = await until_current(together)
    else:
        items = [await _added(ctx, query, now) for query in body.queries]
    refused = sum(item.problem is not None for item in items)
    registered = len(items) - refused
    return QueryBatchOut(items=items, registered=registered, refused=refused, dry_run=dry_run)


async def _checked(
    ctx: Context, queries: list[QueryIn], now: datetime
) -> list[Beginning | StructuredError]:
    """Check all queries; returns for each its checked run, or the error that refuses it."""
    found: list[Beginning | StructuredError] = []
    ids: set[str] = set()
    targets: dict[str, int] = {}
    for number, query in enumerate(queries):
        target = target_of(query.sink)
        try:
            name = id_of(query)
        except PlannerError as cause:
            found.append(cause)
            continue
        if name is not None and name in ids:
            found.append(_twice(name))
        elif target is not None and target in targets:
            found.append(_shared(target, targets[target]))
        else:
            try:
                found.append(await begin(ctx, query, now))
            except _OF_A_QUERY as cause:
                found.append(cause)
        if name is not None:
            ids.add(name)
        if target is not None:
            targets.setdefault(target, number)
    return found


def _refuse(checked: list[Beginning | StructuredError]) -> None:
    """Refuse the batch if any of its queries was refused.

    Raises:
        SeveralInvalid: all errors, with fields that begin with ``queries.<index>``.
    """
    errors = [
        error.moved(field=f"queries.{number}.{error.field}".rstrip("."))
        for number, one in enumerate(checked)
        if not isinstance(one, Beginning)
        for error in (one, *one.others)
    ]
    if errors:
        raise SeveralInvalid(errors)


async def _added(ctx: Context, query: QueryIn, now: datetime) -> QueryBatchItem:
    """Register one query; return the reason if it is refused."""

    async def attempt() -> Beginning:
        run = await begin(ctx, query, now)
        await register(ctx, [run])
        return run

    try:
        run = await until_current(attempt)
    except _OF_A_QUERY as cause:
        return _refused(cause)
    (shown,) = await _shown(ctx, [run], now)
    return QueryBatchItem(query=shown, problem=None)


def _refused(cause: StructuredError) -> QueryBatchItem:
    """Return the answer for a refused query, with error fields relative to the query."""
    line, column = cause.position or (None, None)
    problem = ProblemRecord.of(cause, line=line, column=column)
    return QueryBatchItem(query=None, problem=problem)


async def _shown(ctx: Context, runs: list[Beginning], now: datetime) -> list[QueryOut]:
    """Return the answer for queries that were registered or only checked."""
    progress, sources = await ctx.store.progress(), await ctx.store.sources()
    return [
        query_out(run.record, None, progress, sources, now, parts=run.parts_now) for run in runs
    ]


def _twice(name: str) -> InvalidInput:
    return InvalidInput(
        "duplicate-query",
        f"the batch has two queries {name!r}",
        field="name",
        remedy="give each query its own name, or leave the name out to have one made",
    )


def _shared(target: str, first: int) -> InvalidInput:
    return InvalidInput(
        "sink-in-use",
        f"query {first} of the batch writes to {target!r} as well",
        field="sink",
        remedy="choose another place",
    )
