"""From what a source holds to typed record batches: JSON lines, Arrow IPC.

A line or an IPC stream that is not what its stream declares is counted as invalid, never dropped
silently and never a reason to stop. Parsing and casting are vectorised; only where a part of the
lines is bad it is halved until the bad lines stand alone.
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.json as pj

from anabranch_planner.types import TIMESTAMPS, DataType, TypeKind, parse_type
from anabranch_runtime.errors import AnabranchRuntimeError
from anabranch_runtime.vectors.arrow_types import arrow_type
from anabranch_runtime.vectors.casts import cast

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    #: Column names and their types as declared.
    Columns = Sequence[tuple[str, str]]
    #: Rows, and how many more were there but are invalid.
    Decoded = tuple[pa.RecordBatch, int]

_STRING = DataType(TypeKind.STRING)
#: Types that are text in JSON and read by Spark's casts, which know more spellings.
_AS_TEXT = frozenset({TypeKind.DATE, TypeKind.BINARY}) | TIMESTAMPS


def schema_of(columns: Columns) -> pa.Schema:
    """The Arrow schema in which tuples of a stream travel."""
    return pa.schema([(name, arrow_type(parse_type(text))) for name, text in columns])


def from_json(lines: bytes, columns: Columns, *, text: bool = False) -> Iterator[Decoded]:
    """The objects in ``lines``, one per line, and how many lines are not what is declared.

    Values are read as Spark's ``from_json`` reads them: numbers and booleans as such, dates and
    timestamps as text, binary in base64; what is missing is NULL, what isn't declared is ignored.

    Args:
        lines: UTF-8; empty lines don't count.
        columns: as declared.
        text: every value is text, to be cast to its column's type.
    """
    rows = lines.split(b"\n")
    yield from _parse([r for r in rows if r and not r.isspace()], columns, text)


def from_arrow(stream: bytes, columns: Columns) -> Iterator[Decoded]:
    """The rows of an Arrow IPC stream; all of them are invalid if its columns can't be converted.

    Columns are found by name. Nanoseconds are cut to microseconds; nothing else may lose anything.
    """
    schema = schema_of(columns)
    try:
        with pa.ipc.open_stream(stream) as reader:
            batches = list(reader)
    except (pa.ArrowException, OSError):
        yield empty(schema), 1
        return
    for batch in batches:
        try:
            yield typed(batch, schema), 0
        except (pa.ArrowException, KeyError):
            yield empty(schema), batch.num_rows


def typed(batch: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """The columns of ``schema`` out of ``batch``, converted where nothing is lost.

    Raises:
        KeyError: a column is missing. pa.ArrowException: a value can't be converted.
    """
    columns = [
        batch.column(f.name).cast(f.type, safe=not pa.types.is_timestamp(f.type)) for f in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def empty(schema: pa.Schema) -> pa.RecordBatch:
    """No rows."""
    return pa.RecordBatch.from_arrays([pa.array([], f.type) for f in schema], schema=schema)


def _parse(rows: list[bytes], columns: Columns, text: bool) -> Iterator[Decoded]:
    if not rows:
        return
    try:
        yield _read(b"\n".join(rows), len(rows), columns, text), 0
    except (pa.ArrowException, AnabranchRuntimeError, ValueError):
        if len(rows) == 1:
            yield empty(schema_of(columns)), 1
            return
        half = len(rows) // 2
        yield from _parse(rows[:half], columns, text)
        yield from _parse(rows[half:], columns, text)


def _read(lines: bytes, count: int, columns: Columns, text: bool) -> pa.RecordBatch:
    kinds = [(name, parse_type(kind)) for name, kind in columns]
    schema = pa.schema(
        [(n, pa.string() if text or k.kind in _AS_TEXT else arrow_type(k)) for n, k in kinds]
    )
    table = pj.read_json(
        pa.BufferReader(lines),
        read_options=pj.ReadOptions(use_threads=False, block_size=max(len(lines) + 1, 1 << 16)),
        parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior="ignore"),
    ).combine_chunks()
    if table.num_rows != count:
        raise ValueError("a line holds more than one object")
    arrays = []
    for name, kind in kinds:
        column = table.column(name)
        array = column.chunk(0) if column.num_chunks else pa.array([], column.type)
        if array.type == arrow_type(kind):
            arrays.append(array)
        elif kind.kind is TypeKind.BINARY and not text:
            values = [
                None if v is None else base64.b64decode(v, validate=True) for v in array.to_pylist()
            ]
            arrays.append(pa.array(values, pa.binary()))
        else:
            arrays.append(cast(array, _STRING, kind))
    return pa.RecordBatch.from_arrays(arrays, schema=schema_of(columns))
