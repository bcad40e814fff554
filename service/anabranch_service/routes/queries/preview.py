"""``/v1/queries:preview``: rows of a statement over the latest rows of streams."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

from anabranch_contract.connectors.sources import QUERY
from anabranch_contract.rest.tables import PreviewIn, PreviewOut, SampledOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.registry.statements import usable_streams
from anabranch_service.routes.queries.tables import json_rows
from anabranch_service.tables.current import SentRows, TableSpec
from anabranch_service.tables.named import home_of
from anabranch_service.tables.preview import in_duckdb, table_of

router = guarded_router("/v1", tag="queries")


@router.post("/queries:preview")
@needs(Need.READ)
async def preview(body: PreviewIn, ctx: Ctx) -> PreviewOut:
    """Run a statement once over the latest rows of its streams, and the present rows of queries
    that it reads. Stores nothing.

    DuckDB runs a translation of the statement, whose values may differ from Spark's; a window is
    not applied. At most 256 rows of each stream are read, so joins may lack partners and groups may
    lack rows.
    """
    records = await ctx.store.streams()
    streams = {name.casefold(): one for name, one in records.items() if one.source.format != QUERY}
    async with ctx.work.limited():
        sql = await ctx.work.read(
            in_duckdb, body.sql, body.dialect, usable_streams(records.values())
        )
    progress = await ctx.store.progress()
    counts = {} if progress is None else progress.streams
    samples: list[SampledOut] = []

    async def resolve(names: Sequence[str]) -> tuple[int, Mapping[str, TableSpec | SentRows]]:
        queries = [name for name in names if name.casefold() not in streams]
        batch, specs = await ctx.names.resolve(queries, None)
        found: dict[str, TableSpec | SentRows] = dict(specs)
        for name in sorted(names):
            stream = streams.get(name.casefold())
            if stream is not None:
                latest = await ctx.store.latest(stream.name)
                rows, found[name] = await asyncio.to_thread(table_of, stream, latest)
                seen = counts.get(stream.name, {}).get("input")
                samples.append(SampledOut(stream=stream.name, rows=rows, seen=seen))
        return batch, found

    _, truncated, content = await ctx.tables.statement(home_of(progress), sql, body.limit, resolve)
    columns, rows = await asyncio.to_thread(json_rows, content)
    return PreviewOut(columns=columns, rows=rows, truncated=truncated, samples=samples)
