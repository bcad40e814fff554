"""``/v1/streams/{name}/columns``: change columns of streams in use."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

from fastapi import Response

from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.rest.streams import AddedColumnIn, StreamOut, WidenedColumnIn
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Context, Ctx
from anabranch_service.errors import known
from anabranch_service.parameters import ColumnPath, StreamPath
from anabranch_service.presenters.records import stream_out
from anabranch_service.registry.alterations.added_columns import with_column, without_new_columns
from anabranch_service.registry.alterations.dropped_columns import (
    without_column,
    without_dropped_column,
)
from anabranch_service.registry.alterations.widened_columns import with_type, with_wider_column
from anabranch_service.registry.lifecycle import reads
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.statements import NormalForms
from anabranch_service.versions import IfMatch, check_version, etag

router = guarded_router("/v1/streams", tag="streams")
_Records: TypeAlias = Mapping[str, StreamRecord]
#: Function from the queries over a stream, and all streams before and after a change, to the
#: changed records of these queries.
_Follow: TypeAlias = Callable[
    [str, Sequence[QueryRecord], _Records, _Records, NormalForms], list[QueryRecord]
]


@router.post("/{name}/columns", status_code=201)
@needs(Need.EDIT)
async def add_column(
    name: StreamPath, body: AddedColumnIn, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> StreamOut:
    """Add a column to a stream in use, from the next planned epoch on. Rows read before have the
    default; later rows have the value that the source gives, or NULL. Registered queries keep the
    columns that they have, even with ``SELECT *``. 409 for streams that are queries, PostgreSQL
    tables without a key, and sources whose columns are fixed at registration."""

    def change(record: StreamRecord) -> StreamRecord:
        check_version(record, if_match)
        return with_column(record, body, ctx.settings)

    return await _change(name, ctx, response, change, without_new_columns)


@router.patch("/{name}/columns/{column}")
@needs(Need.EDIT)
async def widen_column(
    name: StreamPath,
    column: ColumnPath,
    body: WidenedColumnIn,
    ctx: Ctx,
    response: Response,
    if_match: IfMatch = None,
) -> StreamOut:
    """Widen the type of a column of a stream in use, from the next planned epoch on. Stored rows
    are read with the new type. Queries continue; 409 if results of a query, or rows that it keeps,
    would get another type, and for streams that are queries and sources whose columns are fixed at
    registration."""

    def change(record: StreamRecord) -> StreamRecord:
        check_version(record, if_match)
        return with_type(record, column, body.type)

    return await _change(name, ctx, response, change, with_wider_column)


@router.delete("/{name}/columns/{column}")
@needs(Need.EDIT)
async def drop_column(
    name: StreamPath, column: ColumnPath, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> StreamOut:
    """Drop a column from a stream in use, from the next planned epoch on. Input need not have it
    any more; stored rows stay. 409 if a query reads it or it is the event time or part of the key,
    and for streams that are queries and sources whose columns are fixed at registration."""

    def change(record: StreamRecord) -> StreamRecord:
        check_version(record, if_match)
        return without_column(record, column)

    return await _change(name, ctx, response, change, without_dropped_column)


async def _change(
    name: str,
    ctx: Context,
    response: Response,
    change: Callable[[StreamRecord], StreamRecord],
    follow: _Follow,
) -> StreamOut:
    """Change a stream, and the queries over it."""
    before: dict[str, StreamRecord] = {}

    def changed(record: StreamRecord) -> StreamRecord:
        before[name] = record
        return change(record)

    async def following(
        streams: dict[str, StreamRecord], queries: list[QueryRecord]
    ) -> list[QueryRecord]:
        now = ctx.clock()
        found = [q for q in queries if reads(q, name) and not q.is_over(now) and not q.rejected]
        given = found, {**streams, **before}, streams, ctx.store.forms
        return await ctx.work.read(follow, name, *given)

    async with ctx.work.limited():
        record = await ctx.store.update_stream_and_readers(name, changed, following)
    record = known(record, "stream", name)
    response.headers["ETag"] = etag(record)
    progress, last = await ctx.store.progress(), await ctx.store.last_snapshot()
    return stream_out(record, progress, await ctx.store.sources(), last)
