"""Rows that do not fit their stream's declaration: found one by one, and kept as they arrived.

Whole columns are converted at once. Only a column that can't be is halved until the values that
can't be converted stand alone, so a clean column costs one conversion and ``k`` bad values among
``n`` cost about ``2 k log n`` more. A row's verdict depends on the row alone: not on which others
are converted with it, and so not on how a source was cut into pieces.
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

#: Raises one of ``FAILURES`` for an array with a value that can't be converted.
Convert = Callable[[pa.Array], pa.Array]
#: Rows that fit the declaration, and invalid rows (:func:`invalid_rows`); None: no invalid rows.
Decoded = tuple[pa.RecordBatch, pa.RecordBatch | None]


#: Errors of conversions.
FAILURES = (pa.ArrowException, AnabranchRuntimeError, ValueError)
#: The last column of invalid rows: raw input, as text or bytes, or as a struct of its columns.
ARRIVED = "#arrived"
#: Characters of a row's text that are kept.
LENGTH = 1 << 16
#: Ranges of up to this many values are not halved any more, but converted one by one.
_FEW = 8


def convert_values(
    column: pa.Array, kind: pa.DataType, convert: Convert
) -> tuple[pa.Array, NDArray[np.bool_] | None]:
    """``column`` converted to ``kind``, NULL where a value can't be; and which those are (None:
    none).
    """
    try:
        return convert(column), None
    except FAILURES:
        if not _converts(column.slice(0, 0), convert):
            # The types do not go together, for any values.
            return pa.nulls(len(column), kind), np.ones(len(column), np.bool_)
        bad = _unconvertible(column, convert)
    kept = np.arange(len(column))
    return convert(column.take(pa.array(kept, mask=bad))), bad


def _unconvertible(column: pa.Array, convert: Convert) -> NDArray[np.bool_]:
    """True for the values of a column that fails as a whole."""
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
    """Invalid rows: the stream's columns, NULL where the input does not fit, and ``arrived``."""
    names = [*rows.schema.names, ARRIVED]
    return pa.RecordBatch.from_arrays([*rows.columns, arrived], names=names)


def split(
    rows: pa.RecordBatch, bad: NDArray[np.bool_] | None, arrived: Callable[[pa.Array], pa.Array]
) -> Decoded:
    """``rows`` without ``bad`` ones, which are returned beside them.

    ``arrived`` gives the raw input for an array of row numbers.
    """
    if bad is None or not bad.any():
        return rows, None
    gone = pa.array(np.flatnonzero(bad))
    return rows.filter(pa.array(~bad)), invalid_rows(rows.take(gone), arrived(gone))


def unreadable(schema: pa.Schema, arrived: pa.Array) -> Decoded:
    """Invalid rows only, without a readable column."""
    nothing = [pa.nulls(len(arrived), f.type) for f in schema]
    rows = pa.RecordBatch.from_arrays(nothing, schema=schema)
    return rows.slice(0, 0), invalid_rows(rows, arrived)


def raw_text(arrived: pa.Array) -> pa.Array:
    """The rows that arrived, as text of at most ``LENGTH`` characters: JSON objects, in which
    binary values are base64; bytes that are no UTF-8 as base64 after ``base64:``.
    """
    texts = _objects(arrived) if pa.types.is_struct(arrived.type) else map(_text, arrived)
    return pa.array([None if t is None else t[:LENGTH] for t in texts], pa.large_string())


def _text(scalar: pa.Scalar) -> str | None:
    data = scalar.as_buffer()
    if data is None:
        return None
    try:
        return data.to_pybytes().decode()  # type: ignore[no-any-return]
    except UnicodeDecodeError:
        # Three bytes make four characters.
        return "base64:" + base64.b64encode(data.slice(0, min(data.size, LENGTH))).decode()


def _objects(rows: pa.StructArray) -> Iterator[str]:
    names = [field.name for field in rows.type]
    columns = [_values(column) for column in rows.flatten()]
    for values in zip(*columns, strict=True):
        row = dict(zip(names, values, strict=True))
        yield json.dumps(row, default=_plain, ensure_ascii=False)


def _values(column: pa.Array) -> list[Any]:
    """Python values of a column; of any that Python does not have, the text."""
    kind = column.type
    if pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
        column = pc.cast(column, pa.string())
    try:
        return column.to_pylist()  # type: ignore[no-any-return]
    except (ValueError, OverflowError):
        # Text that is no UTF-8; times that are out of Python's range, in a nested value.
        if pa.types.is_string(kind) or pa.types.is_large_string(kind):
            return column.cast(pa.large_binary()).to_pylist()  # type: ignore[no-any-return]
        each = (column.slice(i, 1) for i in range(len(column)))
        return [value.to_string(skip_new_lines=True) for value in each]


def _plain(value: Any) -> str:
    return base64.b64encode(value).decode() if isinstance(value, bytes) else str(value)
