"""Gathering values of a column from many tables at once, in any order.

A column in several segments is described by the addresses of its buffers (:class:`ColumnPlaces`).
So one call of a kernel gathers all rows, without sorting them by table and back.

>>> tables = places([place_of(pa.array(["a", None])), place_of(pa.array(["b", "cd"]))])
>>> which, rows = np.array([1, 0, 1, 0], np.int16), np.array([1, 1, 0, 0], np.int32)
>>> gather(tables, which, rows).to_pylist()
['cd', None, 'b', 'a']
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_runtime.columns.arrays import I32
from anabranch_runtime.errors import GatherOverflow
from anabranch_runtime.index import kernels, prefetch

#: Per row, the index of its table; None if all rows are of the first table.
Which = NDArray[np.integer[Any]] | None


#: Argument of kernels in place of ``which`` if all rows are of the first table.
NOWHERE = np.zeros(1, np.int16)
_VARYING, _OTHER = -1, 0
#: Type id -> bits of a value, for types whose width has no parameter.
_WIDTHS: dict[int, int] = {}
_FIXED: dict[int, tuple[Any, Any, int]] = {
    64: (kernels.gather64, np.int64, 1),
    128: (kernels.gather128, np.int64, 2),
    32: (kernels.gather32, np.int32, 1),
    16: (kernels.gather16, np.int16, 1),
    8: (kernels.gather8, np.int8, 1),
}


@dataclass(frozen=True, slots=True)
class ColumnPlace:
    """Addresses of a column's buffers in memory; ``column`` keeps the buffers alive.

    Attributes:
        first: address of the values, or of the offsets of values of varying length, from row 0 on;
            for booleans, address of the bits before ``offset`` is added.
        data: address of the bytes of values of varying length.
        valid: address of the validity bits; 0 without NULLs.
        offset: the bit of row 0 in ``valid``, and in a column of booleans.
    """

    column: pa.Array
    first: int
    data: int
    valid: int
    offset: int


@dataclass(frozen=True, slots=True)
class ColumnPlaces:
    """Addresses of a column's buffers in several tables: arrays with one entry per table."""

    columns: tuple[pa.Array, ...]
    first: NDArray[np.int64]
    data: NDArray[np.int64]
    valid: NDArray[np.int64]
    offset: NDArray[np.int64]
    nullable: bool
    #: Type of the column, which is equal in all tables, and bits of a value (``_VARYING`` for
    #: values of varying length, ``_OTHER`` for types without a kernel).
    kind: pa.DataType
    width: int


def places(found: Sequence[ColumnPlace]) -> ColumnPlaces:
    """Combine the addresses of a column in several tables, as an argument of :func:`gather`."""
    return ColumnPlaces(
        tuple(p.column for p in found),
        np.array([p.first for p in found], np.int64),
        np.array([p.data for p in found], np.int64),
        np.array([p.valid for p in found], np.int64),
        np.array([p.offset for p in found], np.int64),
        any(p.valid for p in found),
        found[0].column.type,
        _width(found[0].column.type),
    )


def joined_places(one: ColumnPlaces, other: ColumnPlaces) -> ColumnPlaces:
    """Return the addresses of one column in the tables of ``one``, then of ``other``."""
    return ColumnPlaces(
        one.columns + other.columns,
        np.concatenate([one.first, other.first]),
        np.concatenate([one.data, other.data]),
        np.concatenate([one.valid, other.valid]),
        np.concatenate([one.offset, other.offset]),
        one.nullable or other.nullable,
        one.kind,
        one.width,
    )


def place_of(column: pa.Array) -> ColumnPlace:
    """Return the buffers' addresses of ``column``, to gather from; it may not be chunked."""
    buffers, kind = column.buffers(), column.type
    valid = buffers[0].address if column.null_count and buffers[0] is not None else 0
    width = _width(kind)
    if width == _OTHER or buffers[1] is None:
        return ColumnPlace(column, 0, 0, valid, column.offset)
    data = buffers[2].address if width == _VARYING and buffers[2] is not None else 0
    width = 4 if width == _VARYING else width // 8
    return ColumnPlace(
        column, buffers[1].address + column.offset * width, data, valid, column.offset
    )


def gather(tables: ColumnPlaces, which: Which, rows: I32) -> pa.Array:
    """Gather a column: ``result[i]`` is its row ``rows[i]`` in table ``which[i]``."""
    if prefetch.is_enabled():
        prefetch.for_rows(tables.columns, which, len(rows))
    chosen = NOWHERE if which is None else which
    if tables.width in _FIXED:
        kernel, word, words = _FIXED[tables.width]
        values = np.empty(len(rows) * words, word)
        kernel(tables.first, chosen, rows, values)
    elif tables.width == 1:
        values = np.zeros((len(rows) + 7) // 8, np.uint8)
        kernels.gather_bits(tables.first, tables.offset, chosen, rows, values)
    elif tables.width == _VARYING:
        return _varying(tables, which, rows)
    else:
        return _anything(tables, which, rows)
    valid, nulls = _validity(tables, chosen, rows)
    return pa.Array.from_buffers(tables.kind, len(rows), [valid, pa.py_buffer(values)], nulls)


def gather_words(tables: ColumnPlaces, which: Which, rows: I32) -> NDArray[np.int64]:
    """Gather a column of 64-bit integers without NULLs as a numpy array; see :func:`gather`."""
    if prefetch.is_enabled():
        prefetch.for_rows(tables.columns, which, len(rows))
    values = np.empty(len(rows), np.int64)
    kernels.gather64(tables.first, NOWHERE if which is None else which, rows, values)
    return values


def pick(values: NDArray[Any], positions: I32) -> NDArray[Any]:
    """Return ``values[positions]`` for a contiguous array of 16-, 32- or 64-bit integers."""
    out = np.empty(len(positions), values.dtype)
    kernels.pick(values, positions, out)
    return out


def address(values: NDArray[Any]) -> int:
    """Return the address of an array's first element, for kernels that gather columns."""
    return int(values.__array_interface__["data"][0])


def _width(kind: pa.DataType) -> int:
    found = _WIDTHS.get(kind.id)
    if found is None:
        found = _OTHER
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            found = _VARYING
        elif pa.types.is_primitive(kind) or pa.types.is_decimal128(kind):
            found = int(kind.bit_width)
        _WIDTHS[kind.id] = found
    return found


def _validity(
    tables: ColumnPlaces, which: NDArray[np.integer[Any]], rows: I32
) -> tuple[pa.Buffer | None, int]:
    if not tables.nullable:
        return None, 0
    bits = np.zeros((len(rows) + 7) // 8, np.uint8)
    nulls = kernels.gather_bits(tables.valid, tables.offset, which, rows, bits)
    return (pa.py_buffer(bits), int(nulls)) if nulls else (None, 0)


def _varying(tables: ColumnPlaces, which: Which, rows: I32) -> pa.Array:
    chosen = NOWHERE if which is None else which
    offsets = np.empty(len(rows) + 1, np.int32)
    total = kernels.gather_lengths(tables.first, chosen, rows, offsets)
    if total < 0:
        raise _overflow(rows)
    data = np.empty(total, np.uint8)
    kernels.gather_bytes(tables.first, tables.data, chosen, rows, offsets, data)
    valid, nulls = _validity(tables, chosen, rows)
    buffers = [valid, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(tables.kind, len(rows), buffers, nulls)


def _anything(tables: ColumnPlaces, which: Which, rows: I32) -> pa.Array:
    """Gather a column of any type with Arrow's ``take``."""
    bases = np.cumsum([0, *(len(c) for c in tables.columns)], dtype=np.int64)
    wanted = rows.astype(np.int64)
    if which is not None:
        wanted += bases[which]
    try:
        found = pa.chunked_array(tables.columns, tables.kind).take(pa.array(wanted))
        return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found
    except pa.ArrowInvalid as error:
        # Arrow's error for such overflows differs only by its message.
        if "overflow" not in str(error):
            raise
        raise _overflow(rows) from error


def _overflow(rows: I32) -> GatherOverflow:
    return GatherOverflow(
        "too-long",
        f"the values of {len(rows)} rows are longer than 2 GiB",
        remedy="shorten the values in the source's column",
    )


@dataclass(slots=True)
class DerivedColumn:
    """A column computed from a table's rows, which may be brought up to date in place.

    Attributes:
        values: one value per row. ``version``: number of the last change included in ``values``.
        place: address of ``values``.
    """

    values: I32
    version: int
    place: ColumnPlace = field(init=False)

    def __post_init__(self) -> None:
        column = pa.Array.from_buffers(
            pa.int32(), len(self.values), [None, pa.py_buffer(self.values)]
        )
        self.place = place_of(column)


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class BatchTable:
    """A record batch as a table of base rows.

    Attributes:
        derived: name -> column computed from the rows, whose address :meth:`place` returns too.
    """

    batch: pa.RecordBatch
    derived: dict[str, DerivedColumn] = field(default_factory=dict, compare=False)
    _places: dict[str, ColumnPlace] = field(default_factory=dict, compare=False)

    @property
    def rows(self) -> int:
        """Number of rows of the record batch."""
        return int(self.batch.num_rows)

    def column(self, name: str) -> pa.Array:
        """Return the column ``name`` of the record batch."""
        return self.batch.column(name)

    def place(self, name: str) -> ColumnPlace:
        """Return the addresses of the buffers of the column ``name``, to gather values from."""
        if name not in self._places:
            made = self.derived.get(name)
            found = place_of(self.batch.column(name)) if made is None else made.place
            self._places[name] = found
        return self._places[name]
