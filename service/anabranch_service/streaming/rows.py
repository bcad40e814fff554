"""Rows pushed to a stream: checked against its columns, and encoded as its entries.

All rows of a request are checked before any is written, and they are written atomically.
"""

from __future__ import annotations

import base64
import binascii
import json
from datetime import date, datetime
from decimal import Decimal
from functools import lru_cache, partial
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    NaiveDatetime,
    StrictBool,
    StrictFloat,
    StrictInt,
    StrictStr,
    create_model,
)
from pydantic_core import PydanticCustomError

from anabranch_contract.connectors.sources import REDIS_STREAM, SourcePayload, redis_stream_options
from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.text_values import interval_text, reader_of
from anabranch_contract.queries.types import INTERVALS, DataType, TypeKind, parse_type
from anabranch_service.clock import in_utc
from anabranch_service.errors import Conflict

#: Maximum number of rows of one request.
MOST = 10_000

_BITS = {TypeKind.TINYINT: 8, TypeKind.SMALLINT: 16, TypeKind.INT: 32, TypeKind.BIGINT: 64}


class _Row(BaseModel):
    model_config = ConfigDict(extra="forbid", allow_inf_nan=False)


def _base64(text: str) -> str:
    try:
        base64.b64decode(text, validate=True)
    except binascii.Error:
        raise PydanticCustomError("bad-base64", "binary values are base64") from None
    return text


def _interval(kind: DataType, text: str) -> str:
    try:
        read = reader_of(kind)(text)
    except OverflowError:
        read = None
    if read is None:
        raise PydanticCustomError(
            "bad-interval", "the text is no {kind}, such as {example}",
            {"kind": str(kind), "example": interval_text(0, kind)},
        )  # fmt: skip
    return text


def _python_type(kind: DataType) -> Any:
    if kind.kind in _BITS:
        limit = 1 << (_BITS[kind.kind] - 1)
        return Annotated[StrictInt, Field(ge=-limit, le=limit - 1)]
    if kind.kind is TypeKind.DECIMAL:
        return Annotated[Decimal, Field(max_digits=kind.precision, decimal_places=kind.scale)]
    if kind.kind is TypeKind.ARRAY:
        return list[_python_type(kind.element) | None]  # type: ignore[misc]
    if kind.kind is TypeKind.MAP:
        return dict[StrictStr, _python_type(kind.element) | None]  # type: ignore[misc]
    if kind.kind is TypeKind.STRUCT:
        fields: dict[str, Any] = {
            f"c{number}": (_python_type(of) | None, Field(default=None, alias=name))
            for number, (name, of) in enumerate(kind.fields)
        }
        return create_model("Struct", __base__=_Row, **fields)
    if kind.kind in INTERVALS:
        return Annotated[StrictStr, AfterValidator(partial(_interval, kind))]
    simple: dict[TypeKind, Any] = {
        TypeKind.VARIANT: Any,
        TypeKind.FLOAT: StrictFloat,
        TypeKind.DOUBLE: StrictFloat,
        TypeKind.BOOLEAN: StrictBool,
        TypeKind.DATE: Annotated[date, Field(strict=True)],
        TypeKind.TIMESTAMP: Annotated[datetime, Field(strict=True), AfterValidator(in_utc)],
        TypeKind.TIMESTAMP_NTZ: Annotated[NaiveDatetime, Field(strict=True)],
        TypeKind.BINARY: Annotated[StrictStr, AfterValidator(_base64)],
    }
    return simple.get(kind.kind, StrictStr)


@lru_cache(maxsize=256)
def _body(columns: tuple[tuple[str, str], ...], event_time: str | None) -> type[BaseModel]:
    """Return a body's model; all columns but the event time may be missing or null."""
    fields: dict[str, Any] = {}
    for number, (name, text) in enumerate(columns):
        kind = _python_type(parse_type(text))
        # Pydantic aliases, since a column's name may be invalid as a field's name.
        if name == event_time:
            fields[f"c{number}"] = (kind, Field(alias=name))
        else:
            fields[f"c{number}"] = (kind | None, Field(default=None, alias=name))
    row = create_model("Row", __base__=_Row, **fields)
    rows = Annotated[list[row], Field(min_length=1, max_length=MOST)]
    return create_model("Rows", __base__=_Row, rows=(rows, ...))


def read_rows(record: StreamRecord, body: bytes) -> list[dict[str, Any]]:
    """Return the rows of a request's JSON body: column -> JSON value, without NULL values.

    Raises:
        ValidationError: rows that do not fit the stream's columns.
    """
    columns = tuple((c.name, c.type) for c in record.columns)
    read: Any = _body(columns, record.event_time).model_validate_json(body)
    return [row.model_dump(mode="json", by_alias=True, exclude_none=True) for row in read.rows]


def target(record: StreamRecord, default: str) -> tuple[str, SourcePayload, str]:
    """Return the (first) Redis Stream to write rows to, with payload and field of its entries.

    Raises:
        Conflict: the service can't write to the stream's source.
    """
    source = record.source
    remedy = "send rows to where the stream is read from"
    if source.format != REDIS_STREAM:
        raise Conflict(
            "not-pushable",
            f"stream {record.name!r} is read from format {source.format!r}, not a Redis Stream",
            field="name",
            remedy=remedy,
        )
    options = redis_stream_options(source.options)
    what = "a server of its own" if options.url is not None else ""
    what = "Arrow entries" if options.payload is SourcePayload.ARROW and not what else what
    what = "change envelopes" if record.envelope is not None and not what else what
    if what:
        raise Conflict(
            "not-pushable",
            f"stream {record.name!r} is read from {what}, which the service does not write",
            field="name",
            remedy=remedy,
        )
    return (options.keys or (default,))[0], options.payload, options.field


def entries(rows: list[dict[str, Any]], payload: SourcePayload, field: str) -> list[dict[str, Any]]:
    """Encode ``rows`` as entries of a Redis Stream: one entry with JSON lines, or one per row."""
    if payload is SourcePayload.FIELDS:
        return [{name: _text(value) for name, value in row.items()} or {"": ""} for row in rows]
    lines = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
    return [{field: lines, "rows": len(rows)}]


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
