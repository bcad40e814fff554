"""Helpers for Arrow arrays: buffers as numpy arrays, masks, type conversion, assembly."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import reduce
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from anabranch_contract.queries.text_values import interval_text
from anabranch_contract.queries.types import DataType, TypeKind
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import ExpressionError

Ints: TypeAlias = npt.NDArray[np.int64]
Bools: TypeAlias = npt.NDArray[np.bool_]
I32: TypeAlias = npt.NDArray[np.int32]
U64: TypeAlias = npt.NDArray[np.uint64]
Floats: TypeAlias = npt.NDArray[np.float64]

MICROS_PER_DAY = 86_400_000_000


def fixed(column: pa.Array, dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """Return the value buffer of a fixed-width column, uncopied; values at NULLs are undefined."""
    if len(column) == 0:
        return np.empty(0, dtype=dtype)
    width = np.dtype(dtype).itemsize
    return np.frombuffer(column.buffers()[1], dtype, len(column), column.offset * width)


def present(column: pa.Array) -> Bools | None:
    """Return the mask of non-NULL values of ``column``; None if it has no NULL."""
    if column.null_count == 0:
        return None
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def with_nulls(values: npt.NDArray[Any], target: pa.DataType, valid: Bools | None) -> pa.Array:
    """Return ``values`` as an Arrow array of type ``target`` (same width), NULL where not valid."""
    mask = None if valid is None else ~valid
    return pa.array(values, mask=mask).view(target)


def both(left: Bools | None, right: Bools | None) -> Bools | None:
    """Return the mask of rows that are valid in both of two columns' masks (None: all rows)."""
    return right if left is None else left if right is None else left & right


def all_present(*columns: pa.Array) -> Bools | None:
    """Return the mask of rows that have a value in every column; None if all have."""
    return reduce(both, map(present, columns), None)


def canonical(values: pa.Array) -> pa.Array:
    """Map all NaNs of a column to one NaN and -0.0 to 0.0, so that equal values have equal bits."""
    if not pa.types.is_floating(values.type):
        return values
    floats = fixed(values, values.type.to_pandas_dtype()) + values.type.to_pandas_dtype()(0.0)
    floats[np.isnan(floats)] = np.nan
    return with_nulls(floats, values.type, present(values))


def truths(column: pa.Array) -> Bools:
    """Return a boolean column as numpy array, NULL as False."""
    return np.asarray(column.fill_null(False).to_numpy(zero_copy_only=False), dtype=np.bool_)


def plain(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    """Return ``column`` as a single array without dictionary encoding."""
    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    return column


def floored_micros(column: pa.Array, target: pa.DataType) -> pa.Array:
    """Convert a timestamp column of any unit to microseconds; rounds down, as Spark does."""
    if column.type.unit == "ns":
        micros = np.floor_divide(fixed(column, np.int64), 1000)
        return with_nulls(micros, target, present(column))
    return column.cast(pa.timestamp("us", column.type.tz)).view(target)


def conform(column: pa.Array | pa.ChunkedArray, kind: DataType) -> pa.Array:
    """Convert a stored column to the Arrow type of its declared type, without changing values.

    Raises:
        ExpressionError: the column's values are of another type.
    """
    target = arrow_type(kind)
    column = plain(column)
    if column.type == target:
        return column
    if pa.types.is_null(column.type):
        return pa.nulls(len(column), target)
    try:
        if pa.types.is_duration(target) and column.type == pa.int64():
            # Parquet files have intervals as 64-bit integers of microseconds.
            return column.view(target)
        if pa.types.is_timestamp(target) and pa.types.is_timestamp(column.type):
            return floored_micros(column, target)
        if pa.types.is_date64(column.type) and kind.kind is TypeKind.DATE:
            days = np.floor_divide(fixed(column, np.int64), 86_400_000).astype(np.int32)
            return with_nulls(days, target, present(column))
        if _same_family(column.type, target) or pa.types.is_nested(target):
            return column.cast(target)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, pa.ArrowTypeError) as error:
        raise ExpressionError("bad-column", f"a column is not of type {kind}: {error}") from error
    raise ExpressionError(
        "bad-column",
        f"a column of Arrow type {column.type} is declared as {kind}",
        remedy="declare the stream's column as it is stored",
    )


def _same_family(given: pa.DataType, target: pa.DataType) -> bool:
    exact = pa.types.is_integer(given) or pa.types.is_decimal(given)
    text = pa.types.is_string(given) or pa.types.is_large_string(given)
    raw = pa.types.is_binary(given) or pa.types.is_large_binary(given)
    raw = raw or pa.types.is_fixed_size_binary(given) or given == pa.binary_view()
    return bool(
        (pa.types.is_duration(given) and pa.types.is_duration(target))
        or (exact and (pa.types.is_integer(target) or pa.types.is_decimal(target)))
        or (pa.types.is_floating(given) and pa.types.is_floating(target))
        or ((text or given == pa.string_view()) and pa.types.is_string(target))
        or (raw and pa.types.is_binary(target))
    )


def by_value(column: pa.Array, function: Callable[[Any], Any], target: pa.DataType) -> pa.Array:
    """Apply ``function`` to an Arrow column, with one call per distinct value; NULL stays NULL."""
    if pa.types.is_floating(column.type):
        width = np.uint32 if pa.types.is_float32(column.type) else np.uint64
        floats = np.float32 if pa.types.is_float32(column.type) else np.float64
        valid = present(column)
        bits = np.array(fixed(column, width))
        if valid is not None:
            bits[~valid] = 0
        distinct, codes = np.unique(bits, return_inverse=True)
        results = [function(v) for v in distinct.view(floats)]
        indices = pa.array(codes.reshape(-1), mask=None if valid is None else ~valid)
        return pa.array(results, target).take(indices)
    encoded = column.dictionary_encode()
    results = [None if v is None else function(v) for v in encoded.dictionary.to_pylist()]
    return pa.array(results, target).take(encoded.indices)


def interval_numbers(column: pa.Array) -> Ints:
    """Return the microseconds or months of intervals; values at NULLs are undefined."""
    width = np.int32 if column.type == pa.int32() else np.int64
    return fixed(column, width).astype(np.int64)


def intervals(numbers: pa.Array, kind: DataType) -> pa.Array:
    """Convert 64-bit numbers of microseconds or months to intervals of the type ``kind``.

    Raises:
        ExpressionError: a number is out of range.
    """
    if kind.kind is TypeKind.INTERVAL:
        return numbers.view(arrow_type(kind))
    try:
        return numbers.cast(arrow_type(kind))
    except pa.ArrowInvalid as error:
        raise overflow(kind) from error


def interval_texts(column: pa.Array, kind: DataType) -> pa.Array:
    """Return intervals of the type ``kind`` as texts, as Spark casts them to STRING."""
    width = pa.int32() if kind.kind is TypeKind.MONTHS else pa.int64()
    return by_value(column.view(width), lambda value: interval_text(value, kind), pa.string())


def scatter(values: pa.Array, rows: Ints, length: int) -> pa.Array:
    """Return a column of ``length`` rows with ``values`` at ``rows`` and NULL elsewhere."""
    return assemble([(rows, values)], length, values.type)


def joined(masks: Sequence[tuple[Bools | None, int]]) -> Bools:
    """Concatenate masks of blocks of rows, as pairs (mask, number of rows); mask None: all rows."""
    return np.concatenate([np.ones(n, np.bool_) if mask is None else mask for mask, n in masks])


def assemble(pieces: Iterable[tuple[Ints, pa.Array]], length: int, target: pa.DataType) -> pa.Array:
    """Assemble an Arrow column from pieces (row numbers, values); rows in no piece are NULL."""
    source = np.full(length, -1, dtype=np.int64)
    arrays: list[pa.Array] = []
    offset = 0
    for rows, values in pieces:
        source[rows] = np.arange(offset, offset + len(rows))
        offset += len(rows)
        arrays.append(values)
    if offset == 0:
        return pa.nulls(length, target)
    return pa.concat_arrays(arrays).take(pa.array(source, mask=source < 0))


def unscaled(column: pa.Array) -> list[int | None]:
    """Return the unscaled integers (1.23 -> 123) of a ``decimal128`` column."""
    raw = memoryview(fixed(column, np.dtype("V16")).tobytes())
    valid = present(column)
    return [
        int.from_bytes(raw[16 * i : 16 * i + 16], "little", signed=True)
        if valid is None or valid[i]
        else None
        for i in range(len(column))
    ]


def decimals(values: Sequence[int | None], kind: DataType) -> pa.Array:
    """Make a decimal column from unscaled integers.

    Raises:
        ExpressionError: a value has more digits than ``kind`` allows.
    """
    bound = 10**kind.precision
    if any(v is not None and not -bound < v < bound for v in values):
        raise overflow(kind)
    raw = b"".join((v or 0).to_bytes(16, "little", signed=True) for v in values)
    validity = pa.array([v is not None for v in values], pa.bool_()).buffers()[1]
    return pa.Array.from_buffers(arrow_type(kind), len(values), [validity, pa.py_buffer(raw)])


def overflow(kind: DataType) -> ExpressionError:
    """Return the error for a value of a column that does not fit the column's type ``kind``."""
    return ExpressionError(
        "overflow",
        f"a value is out of the range of {kind}",
        remedy="cast the operands to a wider type first",
    )


def ranged(first: Ints, count: Ints) -> Ints:
    """Return concatenated ranges: ``count[i]`` integers from ``first[i]`` on, for each ``i``."""
    total = int(count.sum())
    begun = np.repeat(np.cumsum(count) - count, count)
    return np.repeat(first, count) + np.arange(total) - begun
