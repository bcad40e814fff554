"""Encoding of rows as JSON objects for Redis Streams and the live tail, column by column.

===================  ==================================================
type                 JSON
===================  ==================================================
integers             number
float, double        number; NaN and infinities as strings
decimal              string, in full precision
boolean              true, false
string               string
date                 string, ``2026-01-31``
timestamp            string, ``2026-01-31T23:59:59.000001Z``
timestamp_ntz        string, the same without the ``Z``
binary               string, Base64
interval             string, ``INTERVAL '1 02:30:00' DAY TO SECOND`` as Spark writes it
array                array
struct               object
map                  object, with the keys' texts as names
NULL                 null
===================  ==================================================

Equal rows give equal text and different rows different text, so sorting by it is a total order.
"""

from __future__ import annotations

import base64

import pyarrow as pa
import pyarrow.compute as pc

from anabranch_runtime.columns.arrays import interval_texts
from anabranch_runtime.columns.arrow_types import interval_type, spark_type
from anabranch_runtime.columns.nested import is_nested, json_objects, json_of, json_strings

#: Number of rows encoded at once.
ROWS = 1 << 16


def json_rows(rows: pa.RecordBatch) -> pa.Array:
    """Return one JSON object per result row, with members in the order of the columns."""
    if not rows.num_rows:
        return pa.array([], pa.large_string())
    if not rows.num_columns:
        return pa.array(["{}"] * rows.num_rows, pa.large_string())
    pairs = zip(rows.columns, rows.schema, strict=True)
    return json_objects(rows.schema.names, [json_values(*pair) for pair in pairs])


def json_table(rows: pa.Table) -> pa.Array:
    """Return one JSON object per row of a table of results, as :func:`json_rows`."""
    batches = rows.to_batches(max_chunksize=ROWS)
    return pa.concat_arrays([pa.array([], pa.large_string()), *map(json_rows, batches)])


def json_values(column: pa.Array, field: pa.Field) -> pa.Array:
    """Return a JSON text for each value of a result column; null for NULL."""
    kind = interval_type(field.metadata)
    return _values(column if kind is None else interval_texts(column, kind))


def _values(column: pa.Array) -> pa.Array:
    """Return the JSON text of each value of a type that is not nested; null for NULL."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        column, kind = column.dictionary_decode(), kind.value_type
    if is_nested(kind):
        return json_of(column, _values)
    if pa.types.is_duration(kind):
        return json_strings(interval_texts(column, spark_type(kind)).cast(pa.large_string()))
    if pa.types.is_integer(kind) or pa.types.is_boolean(kind):
        return column.cast(pa.large_string())
    if pa.types.is_floating(kind):
        return _floats(column)
    if pa.types.is_decimal(kind) or pa.types.is_date(kind):
        return _quoted(column.cast(pa.large_string()))
    if pa.types.is_timestamp(kind):
        end = "Z" if kind.tz is not None else ""
        text = column.cast(pa.timestamp("us")).cast(pa.large_string())
        return _quoted(pc.replace_substring(text, " ", "T"), end)
    if pa.types.is_binary(kind) or pa.types.is_large_binary(kind):
        coded = [None if v is None else base64.b64encode(v).decode() for v in column.to_pylist()]
        return _quoted(pa.array(coded, pa.large_string()))
    return json_strings(column.cast(pa.large_string()))


def _quoted(text: pa.Array, end: str = "") -> pa.Array:
    quote, last, empty = (pa.scalar(s, pa.large_string()) for s in ('"', f'{end}"', ""))
    return pc.binary_join_element_wise(quote, text, last, empty)


def _floats(column: pa.Array) -> pa.Array:
    text = column.cast(pa.large_string())
    finite = pc.is_finite(column)
    if pc.all(finite).as_py() in (True, None):
        return text
    names = pc.if_else(
        pc.is_nan(column),
        pa.scalar('"NaN"', pa.large_string()),
        pc.if_else(
            pc.greater(column, pa.scalar(0.0, column.type)),
            pa.scalar('"Infinity"', pa.large_string()),
            pa.scalar('"-Infinity"', pa.large_string()),
        ),
    )
    return pc.if_else(finite, text, names)
