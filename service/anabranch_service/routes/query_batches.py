"""``POST /v1/queries:batch``: register many queries with one request."""

from __future__ import annotations

from datetime import datetime

from anabranch_contract.errors import PlannerError, StructuredError
from anabranch_contract.rest.queries import (
    ProblemOut,
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
from anabranch_service.routes.registration import (
    Beginning,
    begin,
    is_understood,
    register,
    register_all,
    target_of,
)

router = guarded_router("/v1", tag="queries")

#: What one query of a batch may be refused for; all else is of the request.
_OF_A_QUERY = (InvalidInput, Conflict, PlannerError)


@router.post("/queries:batch")
@needs(Need.EDIT)
async def add_queries(body: QueryBatchIn, ctx: Ctx) -> QueryBatchOut:
    """Register many queries, in their order: all of them or none, or (``atomic: false``) each that
    can be. They are planned at the next epoch boundary.
    """
    now = ctx.clock()
    if body.atomic:
        runs = await _prepared(ctx, body.queries, now)
        await register_all(ctx, runs)
        items = [QueryBatchItem(query=q, problem=None) for q in await _shown(ctx, runs, now)]
    else:
        items = [await _added(ctx, query, now) for query in body.queries]
    refused = sum(item.problem is not None for item in items)
    return QueryBatchOut(items=items, registered=len(items) - refused, refused=refused)


async def _prepared(ctx: Context, queries: list[QueryIn], now: datetime) -> list[Beginning]:
    """The runs of all ``queries``.

    Raises:
        SeveralInvalid: all that is wrong, by field, from ``queries`` and the number on.
    """
    runs: list[Beginning] = []
    errors: list[StructuredError] = []
    ids: set[str] = set()
    targets: dict[str, int] = {}
    for number, query in enumerate(queries):
        place = f"queries.{number}"
        target = target_of(query.sink)
        if query.id is not None and query.id in ids:
            errors.append(_twice(f"{place}.id", query.id))
        elif target is not None and target in targets:
            errors.append(_shared(f"{place}.sink", target, targets[target]))
        else:
            try:
                runs.append(await begin(ctx, query, now))
            except _OF_A_QUERY as cause:
                errors.append(cause.moved(field=f"{place}.{cause.field}".rstrip(".")))
        if query.id is not None:
            ids.add(query.id)
        if target is not None:
            targets.setdefault(target, number)
    if errors:
        raise SeveralInvalid(errors)
    return runs


async def _added(ctx: Context, query: QueryIn, now: datetime) -> QueryBatchItem:
    """Register one query, if that can be."""
    try:
        run = await begin(ctx, query, now)
        await register(ctx, run)
    except _OF_A_QUERY as cause:
        line, column = cause.position or (None, None)
        problem = ProblemOut(
            code=cause.code,
            message=cause.message,
            field=cause.field,
            remedy=cause.remedy,
            line=line,
            column=column,
        )
        return QueryBatchItem(query=None, problem=problem)
    (shown,) = await _shown(ctx, [run], now)
    return QueryBatchItem(query=shown, problem=None)


async def _shown(ctx: Context, runs: list[Beginning], now: datetime) -> list[QueryOut]:
    """Runs that have just been registered."""
    progress, sources = await ctx.store.progress(), await ctx.store.sources()
    for run in runs:
        await is_understood(ctx, run)
    return [query_out(run.record, None, progress, sources, now) for run in runs]


def _twice(field: str, name: str) -> InvalidInput:
    return InvalidInput(
        "duplicate-query",
        f"the batch has two queries {name!r}",
        field=field,
        remedy="give each an id of its own, or leave it out to have one made",
    )


def _shared(field: str, target: str, first: int) -> InvalidInput:
    return InvalidInput(
        "sink-in-use",
        f"query {first} of the batch writes to {target!r} as well",
        field=field,
        remedy="choose another place",
    )
