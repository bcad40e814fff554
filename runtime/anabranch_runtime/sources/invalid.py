"""Invalid rows: detection of rows that do not fit their stream's declaration; their raw input.

Columns are converted as a whole. Only a column whose conversion fails is halved repeatedly until
the bad values are isolated. So a clean column costs one conversion, and ``k`` bad values among
``n`` cost about ``2 k log n`` more. Whether a row is valid depends on the row alone, and so not on
the division of the input into pieces.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch_runtime.errors import AnabranchRuntimeError

#: Function that converts arrays; raises one of ``FAILURES`` if a value can't be converted.
Convert = Callable[[pa.Array], pa.Array]
#: Rows that fit the stream's declaration, and invalid rows (:func:`invalid_rows`; None: none).
Decoded = tuple[pa.RecordBatch, pa.RecordBatch | None]


#: Errors that conversions raise.
FAILURES = (pa.ArrowException, AnabranchRuntimeError, ValueError)
#: Last column of invalid rows, with their raw input: as text, bytes, or a struct of columns.
ARRIVED = "#arrived"
#: Maximum number of characters kept of an invalid row's raw text.
LENGTH = 1 << 16
#: Number of values up to which a range is converted value by value, not halved.
_FEW = 8


def convert_values(
    column: pa.Array, kind: pa.DataType, convert: Convert
) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """Convert ``column``, with NULL for bad values; return the mask of these too (None: none)."""
    try:
        return convert(column), None
    except FAILURES:
        if not _converts(column.slice(0, 0), convert):
            # No value can be converted to or from these types.
            return pa.nulls(len(column), kind), np.ones(len(column), np.bool_)
        bad = _unconvertible(column, convert)
    kept = np.arange(len(column))
    return convert(column.take(pa.array(kept, mask=bad))), bad


def _unconvertible(column: pa.Array, convert: Convert) -> NDArray[np.bool_]:
    """Return the mask of values that don't fit, in an input column that fails as a whole."""
    bad = np.zeros(len(column), np.bool_)
    ranges = [(0, len(column))]
    while ranges:
        low, high = ranges.pop()
        if high - low > 1 and _converts(column.slice(low, high - low), convert):
            continue
        if high - low > _FEW:
            middle = (low + high) // 2
            ranges += [(low, middle), (middle, high)]
        else:
            for i in range(low, high):
                bad[i] = not _converts(column.slice(i, 1), convert)
    return bad


def _converts(column: pa.Array, convert: Convert) -> bool:
    try:
        convert(column)
    except FAILURES:
        return False
    return True


def invalid_rows(rows: pa.RecordBatch, arrived: pa.Array) -> pa.RecordBatch:
    """Append the column of raw input, ``arrived``, to invalid rows, whose unfit values are NULL."""
    names = [*rows.schema.names, ARRIVED]
    return pa.RecordBatch.from_arrays([*rows.columns, arrived], names=names)


def split(
    rows: pa.RecordBatch, bad: NDArray[np.bool_] | None, arrived: Callable[[pa.Array], pa.Array]
) -> Decoded:
    """Split a block of input ``rows`` into valid rows and ``bad`` (invalid) rows.

    ``arrived`` returns the raw input of rows, given an array of their numbers.
    """
    if bad is None or not bad.any():
        return rows, None
    gone = pa.array(np.flatnonzero(bad))
    return rows.filter(pa.array(~bad)), invalid_rows(rows.take(gone), arrived(gone))


def unreadable(schema: pa.Schema, arrived: pa.Array) -> Decoded:
    """Return rows that are all invalid, with NULL in all columns, and their raw input."""
    nothing = [pa.nulls(len(arrived), f.type) for f in schema]
    rows = pa.RecordBatch.from_arrays(nothing, schema=schema)
    return rows.slice(0, 0), invalid_rows(rows, arrived)


def raw_text(arrived: pa.Array) -> pa.Array:
    """Return raw input as text of at most ``LENGTH`` characters. Structs become JSON objects with
    binary values in base64; bytes that are not UTF-8 become ``base64:`` and their base64."""
    texts = _objects(arrived) if pa.types.is_struct(arrived.type) else map(_scalar_text, arrived)
    return pa.array([None if t is None else t[:LENGTH] for t in texts], pa.large_string())


def _scalar_text(scalar: pa.Scalar) -> str | None:
    data = scalar.as_buffer()
    if data is None:
        return None
    try:
        return data.to_pybytes().decode()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        # In base64, three bytes are four characters.
        return "base64:" + base64.b64encode(data.slice(0, min(data.size, LENGTH))).decode()


def _objects(rows: pa.StructArray) -> Iterator[str]:
    names = [field.name for field in rows.type]
    columns = [_values(column) for column in rows.flatten()]
    for values in zip(*columns, strict=True):
        row = dict(zip(names, values, strict=True))
        yield json.dumps(row, default=_plain, ensure_ascii=False)


def _values(column: pa.Array) -> list[Any]:
    """Return an input column's Python values; text for values that Python can't represent."""
    kind = column.type
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        column = pc.cast(column, pa.string())
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        # For strings that are not UTF-8, and nested times beyond Python's range.
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]
        each = (column.slice(i, 1) for i in range(len(column)))
        return [value.to_string(skip_new_lines=True) for value in each]


def _plain(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
