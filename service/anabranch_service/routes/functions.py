"""``/v1/functions``: users' functions, for calls in queries."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from fastapi import Path, Query

from anabranch_contract.durations import format_duration
from anabranch_contract.rest.functions import FunctionIn, FunctionList, FunctionOut, FunctionRecord
from anabranch_planner.passes import builtin_functions
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.errors import Conflict, known
from anabranch_service.registry.derived import Queries
from anabranch_service.registry.functions import function_record
from anabranch_service.registry.records import QueryRecord
from anabranch_service.routes.queries.registration import known_queries

router = guarded_router("/v1/functions", tag="functions")

FunctionName = Annotated[str, Path(max_length=128, description="Name of the function in SQL.")]


@router.post("", status_code=201)
@needs(Need.EDIT)
async def add_function(
    body: FunctionIn,
    ctx: Ctx,
    replace: Annotated[
        bool, Query(description="Change a function of this name that no live query calls.")
    ] = False,
) -> FunctionOut:
    """Register a function of a Python module that the operator allows. The module is not executed
    before a query calls the function. 409 if the name is taken, or live queries call it."""
    async with ctx.work.limited():
        access, now = ctx.settings.access, ctx.clock()
        record = await ctx.work.read(function_record, body, access, now)
    queries, name = await known_queries(ctx), record.to_function().name

    def decide(
        before: FunctionRecord | None, records: Sequence[QueryRecord]
    ) -> FunctionRecord | None:
        if before is not None and not replace:
            raise Conflict(
                "duplicate-function",
                f"a function {name!r} is registered already",
                field="signature",
                remedy="choose another name, or replace it (--replace)",
            )
        if before is not None and before.to_function() == record.to_function():
            return record.model_copy(update={"created_at": before.created_at})
        _check_unused(name, queries, records, "signature")
        return record

    kept = known(await ctx.store.change_function(name, decide), "function", name)
    return _function_answer(kept, queries)


@router.get("")
@needs(Need.READ)
async def list_functions(ctx: Ctx) -> FunctionList:
    """All registered functions, by name, and the names of the built-in ones."""
    queries, found = await known_queries(ctx), await ctx.store.functions()
    items = [_function_answer(record, queries) for record in found.values()]
    return FunctionList(items=items, builtin=list(builtin_functions()))


@router.get("/{name}")
@needs(Need.READ)
async def get_function(name: FunctionName, ctx: Ctx) -> FunctionOut:
    """One function, and the live queries that call it."""
    record = known(await ctx.store.function(name.lower()), "function", name)
    return _function_answer(record, await known_queries(ctx))


@router.delete("/{name}", status_code=204)
@needs(Need.EDIT)
async def delete_function(name: FunctionName, ctx: Ctx) -> None:
    """Delete a function; 409 while a live query calls it."""
    name, queries = name.lower(), await known_queries(ctx)

    def decide(before: FunctionRecord | None, records: Sequence[QueryRecord]) -> None:
        known(before, "function", name)
        _check_unused(name, queries, records, "name")

    await ctx.store.change_function(name, decide)


def _check_unused(name: str, queries: Queries, records: Sequence[QueryRecord], field: str) -> None:
    """Refuse to change a function that a live query calls."""
    blocking = queries.callers_of(name)(records)
    if blocking:
        raise Conflict(
            "function-in-use",
            f"function {name!r} is called by {', '.join(blocking)}",
            field=field,
            remedy="delete these queries, or register the new version under another name",
        )


def _function_answer(record: FunctionRecord, queries: Queries) -> FunctionOut:
    function = record.to_function()
    return FunctionOut.of(
        record,
        name=function.name,
        version=function.version,
        time_limit=format_duration(record.time_limit * 1000),
        queries=queries.callers_of(function.name)(queries.records),
    )
