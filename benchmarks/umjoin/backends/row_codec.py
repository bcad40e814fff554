"""Encoding of rows as bytes, for a key-value store.

A row consists of: its length (uint32), one bit per column that is set if the value is not NULL, the
values of fixed width (booleans as a byte), the lengths (uint32) of values of variable length, and
their bytes. All numbers are little-endian.

>>> codec = RowCodec(pa.schema([("a", pa.int32()), ("b", pa.string())]))
>>> rows = pa.RecordBatch.from_pydict({"a": [1, None], "b": ["x", None]}, schema=codec.schema)
>>> data, starts = codec.encode(rows)
>>> codec.decode(data, starts[:-1]).to_pylist()
[{'a': 1, 'b': 'x'}, {'a': None, 'b': None}]
"""
# Compiled functions have Numba's types; the rest is checked.
# mypy: disable-error-code="no-untyped-call, misc"

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import fixed
from anabranch_runtime.errors import StateError

Bytes = NDArray[np.uint8]
Ints = NDArray[np.int64]


_LENGTH = 4


@dataclass(frozen=True, slots=True)
class _Column:
    """A column; ``at``: offset of its value or, if its length varies (``width`` 0), of
    the length.
    """

    name: str
    number: int
    width: int
    at: int


@dataclass(frozen=True)
class RowCodec:
    """Encodes and decodes rows of one schema."""

    schema: pa.Schema
    columns: tuple[_Column, ...] = field(init=False)
    #: Bytes of a row without values of variable length.
    least: int = field(init=False)

    def __post_init__(self) -> None:
        """Raises:
        StateError: ``bad-table``: a type that rows can't have.
        """
        found: list[_Column] = []
        at = _LENGTH + (len(self.schema) + 7) // 8
        widths = [(n, f, _width(f)) for n, f in enumerate(self.schema)]
        for number, one, width in sorted(widths, key=lambda w: w[2] == 0):
            found.append(_Column(one.name, number, width, at))
            at += width or _LENGTH
        object.__setattr__(self, "columns", tuple(found))
        object.__setattr__(self, "least", at)

    def encode(self, rows: pa.RecordBatch) -> tuple[Bytes, Ints]:
        """Return the bytes of all rows, the offset of each, and the end."""
        count = rows.num_rows
        varying = [c for c in self.columns if not c.width]
        lengths = np.full(count, self.least, np.int64)
        texts = {c.name: _text(rows.column(c.name)) for c in varying}
        for bounds, _ in texts.values():
            lengths += np.diff(bounds)
        starts = np.zeros(count + 1, np.int64)
        np.cumsum(lengths, out=starts[1:])
        data = np.zeros(int(starts[-1]), np.uint8)
        _put(data, starts, 0, _as_bytes(lengths.astype("<u4")))
        valid = np.stack([_valid(rows.column(i)) for i in range(len(self.schema))], axis=1)
        _put(data, starts, _LENGTH, np.packbits(valid, axis=1, bitorder="little"))
        for column in self.columns:
            if column.width:
                _put(data, starts, column.at, _words(rows.column(column.name), column.width))
        ends = starts[:-1] + self.least
        for column in varying:
            bounds, text = texts[column.name]
            _put(data, starts, column.at, _as_bytes(np.diff(bounds).astype("<u4")))
            _put_text(data, ends, bounds, text)
        return data, starts

    def decode(self, data: Bytes, starts: Ints) -> pa.RecordBatch:
        """Decode the rows that begin at ``starts``."""
        count = len(starts)
        bits = np.empty((count, (len(self.schema) + 7) // 8), np.uint8)
        _get(data, starts, _LENGTH, bits)
        valid = np.unpackbits(bits, axis=1, count=len(self.schema), bitorder="little").view(bool)
        arrays: list[pa.Array] = [None] * len(self.schema)
        cursor = starts + self.least
        for column in self.columns:
            kind = self.schema.field(column.number).type
            present = valid[:, column.number]
            nulls = count - int(present.sum())
            mask = pa.py_buffer(np.packbits(present, bitorder="little")) if nulls else None
            values = np.empty((count, column.width or _LENGTH), np.uint8)
            _get(data, starts, column.at, values)
            if pa.types.is_boolean(kind):
                buffers = [mask, pa.py_buffer(np.packbits(values[:, 0], bitorder="little"))]
            elif column.width:
                buffers = [mask, pa.py_buffer(values)]
            else:
                lengths = values.reshape(-1).view("<u4")
                bounds = np.zeros(count + 1, np.int32)
                np.cumsum(lengths, out=bounds[1:])
                text = np.empty(int(bounds[-1]), np.uint8)
                _get_text(data, cursor, bounds, text)
                buffers = [mask, pa.py_buffer(bounds), pa.py_buffer(text)]
            arrays[column.number] = pa.Array.from_buffers(kind, count, buffers, nulls)
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def split(self, data: Bytes, starts: Ints, ends: Ints) -> tuple[Ints, Ints]:
        """Return the offsets of the rows that are stored one after the other from each of
        ``starts`` to ``ends``, and the number of rows of each range.
        """
        counts = np.zeros(len(starts), np.int64)
        most = int((ends - starts).sum()) // self.least
        found = np.empty(most, np.int64)
        used = _split(data, starts, ends, found, counts)
        return found[:used], counts


def _width(one: pa.Field) -> int:
    kind = one.type
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return 0
    if pa.types.is_boolean(kind):
        return 1
    if pa.types.is_primitive(kind) or pa.types.is_decimal128(kind):
        return int(kind.bit_width) // 8
    raise StateError(
        "bad-table",
        f"the backend 'rocksdb' has no columns of type {kind}",
        field=one.name,
        remedy="cast the column to a number, string, boolean, date, timestamp or binary",
    )


def _valid(column: pa.Array) -> NDArray[np.bool_]:
    return np.asarray(column.is_valid().to_numpy(zero_copy_only=False), np.bool_)


def _words(column: pa.Array, width: int) -> Bytes:
    if pa.types.is_boolean(column.type):
        column = column.cast(pa.uint8())
    return _as_bytes(fixed(column, np.dtype(f"V{width}")))


def _as_bytes(values: NDArray[Any]) -> Bytes:
    flat: Bytes = np.ascontiguousarray(values).view(np.uint8)
    return flat.reshape(len(values), values.dtype.itemsize)


def _text(column: pa.Array) -> tuple[Ints, Bytes]:
    """Return the bounds of texts (a NULL is empty) and their bytes."""
    if column.null_count:
        column = column.fill_null(b"" if pa.types.is_binary(column.type) else "")
    _, offsets, data = column.buffers()
    if not len(column):
        return np.zeros(1, np.int64), np.empty(0, np.uint8)
    bounds = np.frombuffer(offsets, np.int32, len(column) + 1, column.offset * 4).astype(np.int64)
    return bounds, np.frombuffer(data or b"", np.uint8)


@njit(cache=True, nogil=True)
def _put(data: Any, starts: Any, at: int, values: Any) -> None:
    for i in range(len(values)):
        first = starts[i] + at
        for k in range(values.shape[1]):
            data[first + k] = values[i, k]


@njit(cache=True, nogil=True)
def _get(data: Any, starts: Any, at: int, values: Any) -> None:
    for i in range(len(starts)):
        first = starts[i] + at
        for k in range(values.shape[1]):
            values[i, k] = data[first + k]


@njit(cache=True, nogil=True)
def _put_text(data: Any, ends: Any, bounds: Any, text: Any) -> None:
    """Write texts at ``ends``, which are advanced past them."""
    for i in range(len(ends)):
        for k in range(bounds[i], bounds[i + 1]):
            data[ends[i]] = text[k]
            ends[i] += 1


@njit(cache=True, nogil=True)
def _get_text(data: Any, cursor: Any, bounds: Any, text: Any) -> None:
    for i in range(len(cursor)):
        for k in range(bounds[i], bounds[i + 1]):
            text[k] = data[cursor[i]]
            cursor[i] += 1


@njit(cache=True, nogil=True)
def _split(data: Any, starts: Any, ends: Any, found: Any, counts: Any) -> int:
    used = 0
    for i in range(len(starts)):
        at = starts[i]
        while at < ends[i]:
            found[used] = at
            used += 1
            counts[i] += 1
            length = np.int64(data[at]) | np.int64(data[at + 1]) << 8
            length |= np.int64(data[at + 2]) << 16 | np.int64(data[at + 3]) << 24
            at += length
    return used
