"""``/v1/families`` and ``/v1/queries:family``: queries that differ only in constants."""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import Mapping
from typing import Annotated

from fastapi import Path, Query
from pydantic import ValidationError

from anabranch_contract.errors import QueryError
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from anabranch_contract.queries.runs import query_of
from anabranch_contract.rest.families import (
    FamilyIn,
    FamilyList,
    FamilyMember,
    FamilyMembers,
    FamilyOut,
)
from anabranch_contract.rest.queries import QueryBatchIn, QueryBatchOut, QueryIn
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.errors import Conflict, InvalidInput, SeveralInvalid, known
from anabranch_service.parameters import Limit, QueryCursor
from anabranch_service.registry.families import QueryFamily, families
from anabranch_service.registry.lifecycle import LIVE, results_of, status_of
from anabranch_service.routes.queries.batches import add_queries

router = guarded_router("/v1", tag="queries")


@router.post("/queries:family")
@needs(Need.EDIT)
async def add_family(
    body: FamilyIn,
    ctx: Ctx,
    dry_run: Annotated[bool, Query(description="Only check the queries; store nothing.")] = False,
) -> QueryBatchOut:
    """Register a query per entry of ``parameters``, all or none."""
    keys, queries = list(body.parameters), list[QueryIn]()
    for key in keys:
        try:
            queries.append(body.member(key))
        except QueryError as cause:
            raise InvalidInput(
                cause.code, cause.message, field=cause.field, remedy=cause.remedy
            ) from None
        except ValidationError as cause:
            raise InvalidInput(
                "bad-name",
                f"{body.name}-{key} can't be the name of a query: {cause.errors()[0]['msg']}",
                field=f"parameters.{key}",
                remedy="use letters, digits, '_', '.' and '-' in the keys of parameters",
            ) from None
    try:
        return await add_queries(QueryBatchIn(queries=queries), ctx, dry_run)
    except SeveralInvalid as cause:
        named = [one.moved(field=_named(one.field, keys)) for one in cause.errors]
        # Errors in common fields occur for every query, and are reported once.
        raise SeveralInvalid(list({(e.field, e.message): e for e in named}.values())) from None
    except Conflict as cause:
        raise cause.moved(field=_named(cause.field, keys)) from None


@router.get("/families")
@needs(Need.READ)
async def list_families(ctx: Ctx, limit: Limit = 100) -> FamilyList:
    """Families of queries that have not ended: their statements differ only in constants."""
    found = await _live_families(ctx, await ctx.store.activations(), await ctx.store.progress())
    return FamilyList(items=[_out(one) for one in found[:limit]])


@router.get("/families/{family}")
@needs(Need.READ)
async def get_family(
    family: Annotated[str, Path(description="Id of the family.")],
    ctx: Ctx,
    limit: Limit = 100,
    cursor: QueryCursor = None,
) -> FamilyMembers:
    """The queries of a family, with their constants."""
    now, progress = ctx.clock(), await ctx.store.progress()
    activations = await ctx.store.activations()
    every = await _live_families(ctx, activations, progress)
    found = known(next((one for one in every if one.id == family), None), "family", family)
    after = 0 if cursor is None else int(cursor)
    first = bisect_right(found.members, after, key=lambda member: member[0].sequence)
    page = found.members[first : first + limit]
    items = [
        FamilyMember(
            id=query_of(record.id),
            name=query_of(record.id),
            constants=list(constants),
            status=status_of(record, activations.get(record.id), progress, now),
            results=results_of(record, activations.get(record.id), progress),
        )
        for record, constants in page
    ]
    more = first + limit < len(found.members)
    last = str(page[-1][0].sequence) if more else None
    return FamilyMembers(family=_out(found), items=items, next_cursor=last)


async def _live_families(
    ctx: Context, activations: Mapping[str, Activation], progress: Progress | None
) -> list[QueryFamily]:
    now = ctx.clock()
    live = [
        one.record
        for one in await ctx.store.newest_queries()
        if status_of(one.record, activations.get(one.record.id), progress, now) in LIVE
    ]
    return await asyncio.to_thread(families, live)


def _out(family: QueryFamily) -> FamilyOut:
    return FamilyOut(
        id=family.id,
        statement=family.statement,
        queries=len(family.members),
        first=query_of(family.members[0][0].id),
    )


def _named(field: str, keys: list[str]) -> str:
    """Convert the field of an error in a request for a batch to the field in a request for a
    family.

    >>> [_named(f"queries.1.{field}", ["kef", "osl"]) for field in ("sql", "window.f")]
    ['parameters.osl.sql', 'window.f']
    """
    batch, _, place = field.partition(".")
    if batch != "queries":
        return field
    number, *rest = place.split(".")
    own = not rest or rest[0] in ("name", "sql")
    return ".".join(("parameters", keys[int(number)], *rest) if own else rest)
