"""``/v1/queries/{name}/table`` and ``/v1/queries:sql``: results as tables, as of one batch."""

from __future__ import annotations

import asyncio
import base64
import math
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import partial
from typing import Annotated, Any
from uuid import UUID

import pyarrow as pa
from fastapi import Query, Request
from fastapi.responses import Response, StreamingResponse

from anabranch_contract.queries.text_values import interval_text
from anabranch_contract.queries.types import TypeKind, whole_interval
from anabranch_contract.rest.normalised import OutputInfo
from anabranch_contract.rest.tables import ARROW, QueryTableOut, SqlIn, SqlOut
from anabranch_service.access.guarded import guarded_router
from anabranch_service.access.roles import Need, needs
from anabranch_service.context import Ctx
from anabranch_service.parameters import RunPath
from anabranch_service.registry.lifecycle import LIVE, Status
from anabranch_service.tables.described import check_batch, spec_of
from anabranch_service.tables.named import home_of

router = guarded_router("/v1", tag="queries")

_DAY_TO_SECOND, _YEAR_TO_MONTH = map(whole_interval, (TypeKind.INTERVAL, TypeKind.MONTHS))
_DAY = 86_400_000_000
_ROWS: dict[int | str, dict[str, Any]] = {
    200: {"description": "Rows as an Arrow IPC stream", "content": {ARROW: {}}}
}


@router.get("/queries/{name}/table")
@needs(Need.READ)
async def table(name: RunPath, ctx: Ctx) -> QueryTableOut:
    """The columns of a query's table, and its newest batch."""
    (seen,), _ = await ctx.names.seen([name])
    spec = spec_of(seen.record)
    return QueryTableOut(
        run=seen.record.id,
        kind=spec.kind.value,
        batch=seen.batch,
        ended=seen.status not in LIVE or seen.status is Status.PAUSED,
        columns=_columns(spec.columns),
        changes=_columns(spec.changed),
    )


@router.get("/queries/{name}/table/rows", response_class=StreamingResponse, responses=_ROWS)
@needs(Need.READ)
async def table_rows(
    name: RunPath,
    ctx: Ctx,
    batch: Annotated[
        int | None,
        Query(ge=-1, description="Read the table as of this batch; default: the newest batch."),
    ] = None,
    changes: Annotated[
        bool, Query(description="Return the results as the sink has them, instead of the table.")
    ] = False,
    after: Annotated[
        int | None, Query(ge=-2, description="Only results of batches after this one.")
    ] = None,
    limit: Annotated[
        int | None,
        Query(ge=0, description="Maximum number of rows; 0: only the columns. Default: all rows."),
    ] = None,
) -> StreamingResponse:
    """The rows of a query's table or, with `changes` or `after`, its results, as an Arrow IPC
    stream. Metadata of its schema: batch (`anabranch_batch`) and run (`anabranch_run`)."""
    (seen,), progress = await ctx.names.seen([name])
    upto = check_batch(batch, [seen.batch])
    spec = replace(
        spec_of(await ctx.names.as_of(name, seen, upto)),
        upto=upto,
        after=-2 if after is None else after,
        raw=changes or after is not None,
    )
    parts = await ctx.tables.table(home_of(progress), spec, limit)
    return StreamingResponse(parts, media_type=ARROW, headers={"Cache-Control": "no-store"})


@router.post("/queries:sql", response_model=SqlOut)
@needs(Need.READ)
async def sql(body: SqlIn, ctx: Ctx, request: Request) -> Response | SqlOut:
    """Run a SELECT over tables of queries, all as of the same batch; stores nothing.

    The answer is JSON, or with `Accept: application/vnd.apache.arrow.stream` an Arrow IPC stream.
    """
    home = home_of(await ctx.store.progress())
    resolve = partial(ctx.names.resolve, wanted=body.batch)
    batch, truncated, content = await ctx.tables.statement(home, body.sql, body.limit, resolve)
    if ARROW in request.headers.get("accept", ""):
        return Response(content, media_type=ARROW, headers={"Cache-Control": "no-store"})
    columns, rows = await asyncio.to_thread(json_rows, content)
    return SqlOut(batch=batch, columns=columns, rows=rows, truncated=truncated)


def _columns(some: Sequence[tuple[str, str]]) -> list[OutputInfo]:
    return [OutputInfo(name=name, type=kind) for name, kind in some]


def json_rows(content: bytes) -> tuple[list[str], list[list[Any]]]:
    """Return columns and rows of an Arrow IPC stream, with values as sinks write them in JSON."""
    found = pa.ipc.open_stream(content).read_all()
    columns = [[_json_value(value) for value in column.to_pylist()] for column in found.columns]
    rows = [list(row) for row in zip(*columns, strict=True)]
    return found.column_names, rows


def _json_value(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else str(value)
    if isinstance(value, datetime):
        return value.isoformat().replace("+00:00", "Z")
    if isinstance(value, date | time):
        return value.isoformat()
    if isinstance(value, Decimal | UUID):
        return str(value)
    if isinstance(value, pa.MonthDayNano):
        return _interval(value)
    if isinstance(value, timedelta):
        return interval_text(value // timedelta(microseconds=1), _DAY_TO_SECOND)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, dict):
        return {str(name): _json_value(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_json_value(one) for one in value]
    return value


def _interval(value: pa.MonthDayNano) -> str:
    """Return an interval of DuckDB as Spark's text; Spark has separate types for months and days.

    >>> _interval(pa.MonthDayNano((14, 0, 0)))
    "INTERVAL '1-2' YEAR TO MONTH"
    >>> _interval(pa.MonthDayNano((1, 2, 5_000_000)))
    "INTERVAL '0-1' YEAR TO MONTH + INTERVAL '2 00:00:00.005' DAY TO SECOND"
    """
    micros = value.days * _DAY + value.nanoseconds // 1000
    months = [interval_text(value.months, _YEAR_TO_MONTH)] if value.months else []
    days = [interval_text(micros, _DAY_TO_SECOND)] if micros or not months else []
    return " + ".join([*months, *days])
