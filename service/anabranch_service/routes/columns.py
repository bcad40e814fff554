"""``/v1/streams/{name}/columns``: add columns to streams in use."""

from __future__ import annotations

from fastapi import Response

from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.rest.streams import AddedColumnIn, StreamOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.errors import known
from anabranch_service.presenters.records import stream_out
from anabranch_service.registry.alterations.added_columns import with_column, without_new_columns
from anabranch_service.registry.lifecycle import reads
from anabranch_service.registry.records import QueryRecord
from anabranch_service.versions import IfMatch, check_version, etag

router = guarded_router("/v1/streams", tag="streams")


@router.post("/{name}/columns", status_code=201)
@needs(Need.EDIT)
async def add_column(
    name: str, body: AddedColumnIn, ctx: Ctx, response: Response, if_match: IfMatch = None
) -> StreamOut:
    """Add a column to a stream in use, from the next planned epoch on. Rows read before have the
    default; later rows have the value that the source gives, or NULL. Registered queries go on
    with the columns that they have, also ``SELECT *``. 409 for tables, changes, upserts, queries,
    and sources that are read with the columns of their registration.
    """
    before: dict[str, StreamRecord] = {}

    def change(record: StreamRecord) -> StreamRecord:
        check_version(record, if_match)
        before[name] = record
        return with_column(record, body, ctx.settings)

    async def follow(
        streams: dict[str, StreamRecord], queries: list[QueryRecord]
    ) -> list[QueryRecord]:
        now = ctx.clock()
        found = [q for q in queries if reads(q, name) and not q.is_over(now) and not q.rejected]
        given = found, {**streams, **before}, streams, ctx.store.forms
        return await ctx.work.read(without_new_columns, name, *given)

    async with ctx.work.limited():
        record = await ctx.store.update_stream_and_readers(name, change, follow)
    record = known(record, "stream", name)
    response.headers["ETag"] = etag(record)
    progress, last = await ctx.store.progress(), await ctx.store.last_snapshot()
    return stream_out(record, progress, await ctx.store.sources(), last)
