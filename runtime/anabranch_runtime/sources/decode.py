"""Decoders from a source's bytes to typed record batches: JSON lines, Arrow IPC.

A line, row or IPC stream that does not fit its stream's declaration is invalid. Only this is
rejected (``sources.invalid``), never silently, and never stops the stream. Parsing and casting are
vectorised. A block with bad lines is halved repeatedly until every bad line is isolated.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch_contract.queries.types import (
    FLOATING,
    INTEGRAL,
    INTERVALS,
    NESTED,
    TIMESTAMPS,
    DataType,
    TypeKind,
    parse_type,
    struct_of,
)
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import converted, json_lines
from anabranch_runtime.expressions.casts import cast
from anabranch_runtime.expressions.json_parts import APART, values_of
from anabranch_runtime.sources.files.envelopes import Envelope, unwrapped, unwrapped_rows
from anabranch_runtime.sources.invalid import FAILURES, Decoded, convert_values, split, unreadable

#: Declared columns, each as name and type; the type is a text or parsed.
Columns = Sequence[tuple[str, str]]
Kinds = Sequence[tuple[str, DataType]]


_STRING = DataType(TypeKind.STRING)
#: Types that are strings in JSON; they are parsed by Spark's casts, which accept more formats.
_AS_TEXT = frozenset({TypeKind.DATE, TypeKind.BINARY}) | TIMESTAMPS | INTERVALS
#: A decimal type that can represent every integer of 64 bits.
_ANY_INTEGER = pa.decimal128(20)
#: A column that no line has, read so that Arrow counts the objects.
_NOTHING = pa.field("", pa.null())
_BOM = b"\xef\xbb\xbf"
#: Blocks of up to this many lines that can't be parsed as a whole are checked line by line: Arrow
#: takes as long for one line as for some hundred lines.
_FEW = 256


def schema_of(columns: Columns) -> pa.Schema:
    """Return the Arrow schema of a stream's tuples."""
    return pa.schema([(name, arrow_type(parse_type(text))) for name, text in columns])


def from_json(
    lines: bytes, columns: Columns, *, text: bool = False, envelope: Envelope | None = None
) -> Iterator[Decoded]:
    """Decode JSON lines to rows, and separate the lines that do not fit the declaration.

    Values are read as Spark's ``from_json`` reads them: numbers and booleans as they are, dates and
    timestamps as text, binary in base64; missing values are NULL, undeclared ones are ignored.

    Args:
        lines: UTF-8; empty lines are ignored.
        columns: the declared columns.
        text: whether every value is a string, to be cast to its column's type.
        envelope: form of the envelopes from which rows are unwrapped (``envelopes``).
    """
    if envelope is not None:
        lines, others = unwrapped(lines, *envelope)
        if others:
            yield unreadable(schema_of(columns), pa.array(others, pa.binary()))
        if not lines:
            return
    kinds = [(name, parse_type(kind)) for name, kind in columns]
    lines = lines.strip()
    count = lines.count(b"\n") + 1
    # Each line is known to be one object if there are no empty lines and no spaces around objects.
    if _are_objects(lines, count):
        yield from _parse(lines, count, kinds, text)
        return
    rows = [r.removeprefix(_BOM) for r in lines.split(b"\n") if r and not r.isspace()]
    objects = [r for r in rows if _is_object(r)]
    if len(objects) < len(rows):
        bad = [r for r in rows if not _is_object(r)]
        yield unreadable(schema_of(columns), pa.array(bad, pa.binary()))
    if objects:
        yield from _parse(b"\n".join(objects), len(objects), kinds, text)


def from_messages(
    values: Sequence[bytes],
    columns: Columns,
    beside: pa.RecordBatch,
    *,
    envelope: Envelope | None = None,
) -> Iterator[Decoded]:
    """Decode messages of one JSON object each, as :func:`from_json`, to rows with the columns
    ``columns`` and the columns of ``beside`` (a row per message), as have invalid rows."""
    schema = schema_of(columns)
    if envelope is not None:
        given = values
        values, origins, others = unwrapped_rows(given, *envelope)
        if others:
            bad = pa.array([given[i] for i in others], pa.binary())
            yield with_columns(unreadable(schema, bad), beside.take(pa.array(others)))
        if not values:
            return
        beside = beside.take(pa.array(origins))
    kinds = [(name, parse_type(kind)) for name, kind in columns]
    lines = b"\n".join(values)
    if lines.count(b"\n") == len(values) - 1 and _are_objects(lines, len(values)):
        yield from _parse(lines, len(values), kinds, text=False, beside=beside)
        return
    single = [_in_one_line(value) for value in values]
    good = np.fromiter((line is not None for line in single), np.bool_, len(single))
    if not good.all():
        bad = pa.array([v for v, line in zip(values, single, strict=True) if line is None])
        yield with_columns(unreadable(schema, bad), beside.filter(pa.array(~good)))
    objects = [line for line in single if line is not None]
    if objects:
        beside = beside.filter(pa.array(good))
        yield from _parse(b"\n".join(objects), len(objects), kinds, text=False, beside=beside)


def with_columns(decoded: Decoded, beside: pa.RecordBatch) -> Decoded:
    """Add the columns of ``beside`` to decoded rows that are all invalid."""
    rows, invalid = decoded
    assert invalid is not None
    names = [*rows.schema.names, *beside.schema.names]
    columns = [*rows.columns, *beside.slice(0, 0).columns]
    wider = [*invalid.columns[:-1], *beside.columns, invalid.columns[-1]]
    return (
        pa.RecordBatch.from_arrays(columns, names=names),
        pa.RecordBatch.from_arrays(wider, names=[*names, invalid.schema.names[-1]]),
    )


def _in_one_line(value: bytes) -> bytes | None:
    """Return a JSON object without line ends between tokens; None if ``value`` is no object."""
    if not _is_object(value):
        return None
    if b"\n" in value:
        try:
            json.loads(value)
        except (ValueError, RecursionError):
            return None
        value = value.replace(b"\n", b" ")
    return value.removeprefix(_BOM)


def from_arrow(
    stream: bytes, columns: Columns, optional: frozenset[str] = frozenset()
) -> Iterator[Decoded]:
    """Decode an Arrow IPC stream, as :func:`typed`; an unreadable stream is one invalid row."""
    schema = schema_of(columns)
    try:
        with pa.ipc.open_stream(stream) as reader:
            batches = list(reader)
        for batch in batches:
            # The full check finds damaged offsets, which would crash the reader of the values.
            batch.validate(full=True)
    except (pa.ArrowException, OSError):
        yield unreadable(schema, pa.array([stream], pa.binary()))
        return
    for batch in batches:
        yield typed(batch, schema, optional)


def stream_rows(stream: bytes) -> int:
    """Count the rows of an Arrow IPC stream; an unreadable stream counts as one row."""
    try:
        with pa.ipc.open_stream(stream) as reader:
            return sum(batch.num_rows for batch in reader)
    except (pa.ArrowException, OSError):
        return 1


def from_streams(
    values: Sequence[bytes],
    columns: Columns,
    beside: pa.RecordBatch,
    optional: frozenset[str] = frozenset(),
) -> Iterator[Decoded]:
    """Decode messages that are Arrow IPC streams, as :func:`from_arrow`, and add to their rows the
    columns of ``beside``, which has a row per message."""
    good, origins = list[pa.RecordBatch](), list[int]()
    for number, value in enumerate(values):
        for rows, invalid in from_arrow(value, columns, optional):
            if rows.num_rows:
                good.append(rows)
                origins += [number] * rows.num_rows
            if invalid is not None:
                more = beside.take(pa.array([number] * invalid.num_rows))
                yield with_columns((rows.slice(0, 0), invalid), more)
    if good:
        rows, more = pa.concat_batches(good), beside.take(pa.array(origins))
        names = [*rows.schema.names, *more.schema.names]
        yield pa.RecordBatch.from_arrays([*rows.columns, *more.columns], names=names), None


def typed(
    batch: pa.RecordBatch, schema: pa.Schema, optional: frozenset[str] = frozenset()
) -> Decoded:
    """Select the columns of ``schema`` from ``batch`` by name, and convert them to its types.

    Nanoseconds are cut to microseconds. A row is invalid if any other conversion would lose
    information. Without a column, all rows are invalid, unless it is ``optional``: then it is NULL.
    """
    columns: list[pa.Array] = []
    bad: NDArray[np.bool_] | None = None
    for field in schema:
        if field.name in batch.schema.names:
            convert = to_type(field.type)
            column, wrong = convert_values(batch.column(field.name), field.type, convert)
        else:
            column = pa.nulls(batch.num_rows, field.type)
            wrong = None if field.name in optional else np.ones(batch.num_rows, np.bool_)
        columns.append(column)
        if wrong is not None:
            bad = wrong if bad is None else bad | wrong
    rows = pa.RecordBatch.from_arrays(columns, schema=schema)
    return split(rows, bad, lambda which: batch.take(which).to_struct_array())


def to_type(kind: pa.DataType) -> Callable[[pa.Array], pa.Array]:
    """Return a function that converts arrays to ``kind``, losing nanoseconds at most."""
    options = pc.CastOptions(kind, allow_time_truncate="timestamp" in str(kind))

    def convert(column: pa.Array) -> pa.Array:
        if column.type == kind:
            return column
        if pa.types.is_integer(column.type) and pa.types.is_decimal(kind):
            # Arrow refuses casts if some value of the type would not fit, even if none is present.
            column = column.cast(_ANY_INTEGER)
        return column.cast(options=options)

    return convert


def _are_objects(lines: bytes, count: int) -> bool:
    """Whether ``count`` lines, without spaces around them, are one JSON object each."""
    return _is_object(lines) and lines.count(b"}\n{") == count - 1


def _is_object(line: bytes) -> bool:
    """Whether a line can be one JSON object: it begins and ends with a brace.

    If this holds for all lines, no object spans several lines. (Arrow's parser accepts objects of
    several lines, and crashes on the line ``null``.)
    """
    line = line.strip()
    return line.startswith(b"{") and line.endswith(b"}")


def _parse(
    lines: bytes, count: int, kinds: Kinds, text: bool, beside: pa.RecordBatch | None = None
) -> Iterator[Decoded]:
    """Yield the tuples of ``count`` JSON lines, and separately the lines that can't be parsed.
    ``beside`` has further columns, with a row per line."""
    try:
        parsed = _read(lines, count, kinds, text)
    except FAILURES:
        rows = lines.split(b"\n")
    else:
        yield _converted(parsed, lines, kinds, text, beside)
        return
    hopeless = {0} if count == 1 else set()
    if 1 < count <= _FEW and not text:
        hopeless = {i for i, row in enumerate(rows) if _is_hopeless(row, kinds)}
    if hopeless:
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in kinds])
        numbers = sorted(hopeless)
        found = unreadable(schema, pa.array([rows[i] for i in numbers], pa.binary()))
        yield found if beside is None else with_columns(found, beside.take(pa.array(numbers)))
        parts = [[i for i in range(count) if i not in hopeless]]
    else:
        parts = [list(range(count // 2)), list(range(count // 2, count))]
    for part in parts:
        if part:
            which = beside.take(pa.array(part)) if beside is not None else None
            yield from _parse(b"\n".join([rows[i] for i in part]), len(part), kinds, text, which)


def _read(lines: bytes, count: int, kinds: Kinds, text: bool) -> pa.RecordBatch:
    """Parse ``count`` JSON lines; dates, times and binary (with ``text``, all values) stay strings.

    Raises:
        pa.ArrowException, ValueError: a line can't be parsed.
    """
    if not lines.isascii():
        # Checks that the lines are UTF-8, since Arrow would accept any bytes as text.
        lines.decode()
    schema = pa.schema([(n, pa.string() if text else _in_json(k)) for n, k in kinds])
    apart = [(name, kind) for name, kind in kinds if kind.has(*APART)]
    names = {name for name, _ in apart}
    read = pa.schema([field for field in schema if field.name not in names] or [_NOTHING])
    table = json_lines(lines, read).combine_chunks()
    if table.num_rows != count:
        raise ValueError("a line holds more than one object")
    arrays = {
        name: column.chunk(0) if column.num_chunks else pa.array([], column.type)
        for name, column in zip(read.names, table.columns, strict=True)
    }
    for name, kind in kinds:
        if not text and name not in names and kind.has(TypeKind.DECIMAL):
            # The full check refuses numbers with too many digits for their type; the parser does
            # not.
            arrays[name].validate(full=True)
    if apart:
        fields = pa.struct([schema.field(name) for name, _ in apart])
        found = values_of(lines.split(b"\n"), struct_of(apart), fields)
        arrays |= zip(fields.names, found.flatten(), strict=True)
    return pa.RecordBatch.from_arrays([arrays[name] for name in schema.names], schema=schema)


def _is_hopeless(row: bytes, kinds: Kinds) -> bool:
    """Whether a JSON line certainly can't be parsed; False if that is unknown."""
    try:
        values = json.loads(row)
    except (json.JSONDecodeError, UnicodeDecodeError):
        return True
    except (ValueError, RecursionError):
        return False
    for name, kind in kinds:
        value, here = values.get(name), kind.kind
        if value is None:
            continue
        if here in INTEGRAL:
            half = 1 << (arrow_type(kind).bit_width - 1)
            wrong = type(value) is not int or not -half <= value < half
        elif here in FLOATING:
            wrong = type(value) not in (int, float)
        elif here is TypeKind.BOOLEAN:
            wrong = type(value) is not bool
        else:
            wrong = (here is TypeKind.STRING or here in _AS_TEXT) and type(value) is not str
        if wrong:
            return True
    return False


def _converted(
    parsed: pa.RecordBatch, lines: bytes, kinds: Kinds, text: bool, beside: pa.RecordBatch | None
) -> Decoded:
    """Convert parsed JSON lines to their columns' types."""

    def arrived(which: pa.Array) -> pa.Array:
        rows = lines.split(b"\n")
        return pa.array([rows[i] for i in which.to_pylist()], pa.binary())

    arrays: list[pa.Array] = []
    bad: NDArray[np.bool_] | None = None
    for array, (_, kind) in zip(parsed.columns, kinds, strict=True):
        column, wanted = array, arrow_type(kind)
        if array.type != wanted:
            encoded = kind.kind is TypeKind.BINARY and not text
            convert = _from_base64 if encoded else from_text(kind)
            if kind.kind in NESTED and not text:
                convert = _from_parts(kind)
            column, wrong = convert_values(array, wanted, convert)
            if wrong is not None:
                bad = wrong if bad is None else bad | wrong
        arrays.append(column)
    schema = pa.schema([(name, arrow_type(kind)) for name, kind in kinds])
    if beside is not None:
        arrays += beside.columns
        schema = pa.schema([*schema, *beside.schema])
    tuples = pa.RecordBatch.from_arrays(arrays, schema=schema)
    return split(tuples, bad, arrived)


def _in_json(kind: DataType) -> pa.DataType:
    """Return the Arrow type as which JSON values for a column of ``kind`` are read."""
    if kind.kind is TypeKind.ARRAY:
        return pa.list_(_in_json(kind.element))
    if kind.kind is TypeKind.STRUCT:
        return pa.struct([(name, _in_json(of)) for name, of in kind.fields])
    if kind.kind is TypeKind.MAP:
        return pa.map_(*(_in_json(of) for _, of in kind.fields))
    return pa.string() if kind.kind in _AS_TEXT else arrow_type(kind)


def _from_parts(kind: DataType) -> Callable[[pa.Array], pa.Array]:
    """Return a function that converts nested values, as read from JSON, to ``kind``."""

    def leaf(column: pa.Array, of: DataType) -> pa.Array:
        if of.kind is TypeKind.BINARY:
            return _from_base64(column)
        return cast(column, _STRING, of) if of.kind in _AS_TEXT else column

    return lambda column: converted(column, kind, leaf)


def from_text(kind: DataType) -> Callable[[pa.Array], pa.Array]:
    """Return a function that converts strings of a source to values of ``kind``."""
    return lambda column: cast(column, _STRING, kind)


def from_utf8(kind: DataType) -> Callable[[pa.Array], pa.Array]:
    """Return a function that converts UTF-8 bytes of a source to values of ``kind``."""
    convert = from_text(kind)
    return lambda column: convert(column.cast(pa.string()))


def _from_base64(column: pa.Array) -> pa.Array:
    values = [None if v is None else base64.b64decode(v, validate=True) for v in column.to_pylist()]
    return pa.array(values, pa.binary())
