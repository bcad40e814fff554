"""Tuples of values as rows of 64-bit words, equal and ordered as the values are in Spark.

A value takes one word, or two for decimals of more than 18 digits. It follows a word for NULL (0
for values, -1 or 1 for NULL), except in fields without NULL. Integers, dates, times and booleans
are their own words; floats are mapped to integers of the same order (NaN last, -0.0 as 0.0); texts
and binaries are numbers in a pool of texts (:class:`Texts`), where their bytes are compared. Nested
values are numbers in this pool, too, of exact texts, whose order has no meaning. Words of
descending fields are inverted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

from anabranch_contract.queries.types import FLOATING, NESTED, UNORDERED, DataType, TypeKind
from anabranch_runtime.columns.arrays import I32, U64, Bools, Ints, fixed, present
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import exact_text, exact_value
from anabranch_runtime.errors import GatherOverflow
from anabranch_runtime.tables import kernels

U8 = np.typing.NDArray[np.uint8]
_TEXTS = frozenset({TypeKind.STRING, TypeKind.BINARY}) | UNORDERED
#: Maximum number of digits of a decimal in one word.
_DIGITS = 18
_SIGN = np.int64(np.iinfo(np.int64).min)
_REST = np.int64(np.iinfo(np.int64).max)
_ALL = np.empty(0, np.bool_)
#: Initial size of a pool or table; a power of two.
_FEW = 64


def texts_allowed(used: tuple[int, int]) -> tuple[int, int]:
    """Return numbers of texts and bytes from which on a pool is compacted: twice those ``used``."""
    return 2 * used[0] + 4096, 2 * used[1] + 1_000_000


class Texts:
    """A pool of distinct byte strings, numbered from 0 in order of appearance."""

    __slots__ = ("_hashes", "_table", "count", "data", "ends")

    def __init__(self) -> None:
        self.count = 0
        self.data: U8 = np.empty(16 * _FEW, np.uint8)
        self.ends: Ints = np.zeros(_FEW + 1, np.int64)
        self._hashes: U64 = np.empty(_FEW, np.uint64)
        self._table: I32 = np.full(2 * _FEW, kernels.NONE, np.int32)

    def numbers(self, column: pa.Array) -> Ints:
        """Return the number in the pool of each string or binary of ``column``; 0 for NULL."""
        if not len(column):
            return np.empty(0, np.int64)
        _, offsets, data = column.buffers()
        wide = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        dtype = np.int64 if wide else np.int32
        start = column.offset * np.dtype(dtype).itemsize
        bounds: Any = read_only(np.frombuffer(offsets, dtype, len(column) + 1, start))
        given = read_only(np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8))
        valid = present(column)
        out = np.empty(len(column), np.int64)
        done = 0
        while True:
            done, self.count = kernels.intern(
                given,
                bounds,
                _ALL if valid is None else valid,
                done,
                out,
                self._table,
                self._hashes,
                self.data,
                self.ends,
                self.count,
            )
            if done == len(out):
                return out
            self._grow(int(bounds[done + 1] - bounds[done]))

    def column(self, numbers: Ints, valid: Bools | None, target: pa.DataType) -> pa.Array:
        """Return the pool's texts ``numbers`` as a column of type ``target``; NULL: not valid."""
        mask = np.ones(len(numbers), np.bool_) if valid is None else valid
        offsets = np.empty(len(numbers) + 1, np.int64)
        kernels.text_offsets(numbers, mask, self.ends, offsets)
        out = np.empty(int(offsets[-1]), np.uint8)
        kernels.text_bytes(numbers, self.data, self.ends, offsets, out)
        return text_column(offsets, out, valid, target)

    @property
    def size(self) -> tuple[int, int]:
        """Return the number of texts in the pool, and of their bytes."""
        return self.count, int(self.ends[self.count])

    def size_of(self, used: Bools) -> tuple[int, int]:
        """Return the number of the pool's texts that are ``used``, and of their bytes."""
        lengths = np.diff(self.ends[: self.count + 1])
        return int(used.sum()), int(lengths[used].sum())

    @property
    def bytes(self) -> int:
        """Size of the pool of texts in memory, in bytes."""
        return sum(a.nbytes for a in (self.data, self.ends, self._hashes, self._table))

    def _grow(self, size: int) -> None:
        used = self.size[1]
        if used + size > len(self.data):
            self.data = grown(self.data, max(2 * len(self.data), used + size))
        if self.count >= len(self._hashes):
            room = 2 * len(self._hashes)
            self.ends = grown(self.ends, room + 1)
            self._hashes = grown(self._hashes, room)
            self._table = np.full(2 * room, kernels.NONE, np.int32)
            kernels.rehash(self._table, self._hashes, self.count)


def grown(values: np.typing.NDArray[Any], room: int) -> np.typing.NDArray[Any]:
    """Return a copy of a table's array ``values`` with ``room`` rows; new ones are undefined."""
    wider = np.empty((room, *values.shape[1:]), values.dtype)
    wider[: len(values)] = values
    return wider


def read_only(values: np.typing.NDArray[Any]) -> np.typing.NDArray[Any]:
    """Return a view of ``values`` that can't be written to. Kernels are compiled for such arrays;
    for others, they would be compiled again."""
    view = values.view()
    view.flags.writeable = False
    return view


def text_column(offsets: Ints, data: U8, valid: Bools | None, target: pa.DataType) -> pa.Array:
    """Return a column of texts with these offsets and bytes."""
    if offsets[-1] >= 1 << 31:
        raise GatherOverflow(
            "too-long", f"{len(offsets) - 1} texts are longer than 2 GiB", remedy="shorten them"
        )
    buffers = [_bits(valid), pa.py_buffer(offsets.astype(np.int32)), pa.py_buffer(data)]
    return pa.Array.from_buffers(target, len(offsets) - 1, buffers)


@dataclass(frozen=True, slots=True)
class TupleField:
    """Type and encoding of one value of a tuple.

    Attributes:
        nullable: whether the value has a word for NULL; ``nulls_first``: whether NULL sorts first.
        exact: whether -0.0 differs from 0.0, as in values that are only shown or break ties.
    """

    kind: DataType
    descending: bool = False
    nulls_first: bool = True
    nullable: bool = True
    exact: bool = False

    @property
    def wide(self) -> bool:
        """Whether the value takes two words (a decimal of more than 18 digits)."""
        return self.kind.kind is TypeKind.DECIMAL and self.kind.precision > _DIGITS

    @property
    def width(self) -> int:
        """Number of words that the value takes in a tuple, including the word for NULL."""
        return int(self.nullable) + 1 + int(self.wide)


class TupleLayout:
    """Positions of fields in the words of a tuple.

    Attributes:
        width: number of words.
        texts: 1 or -1 for each word that numbers a text, ascending or descending; else 0.
    """

    __slots__ = ("_starts", "fields", "pool", "texts", "width")

    def __init__(self, fields: Sequence[TupleField], pool: Texts) -> None:
        self.fields = tuple(fields)
        self.pool = pool
        self._starts = np.cumsum([0, *(f.width for f in self.fields)]).tolist()
        self.width: int = self._starts[-1]
        self.texts = np.zeros(self.width, np.int64)
        for field, end in zip(self.fields, self._starts[1:], strict=True):
            if field.kind.kind in _TEXTS:
                self.texts[end - 1] = -1 if field.descending else 1

    @property
    def leading(self) -> int:
        """Return the number of fields before the first text."""
        texts = (n for n, field in enumerate(self.fields) if field.kind.kind in _TEXTS)
        return next(texts, len(self.fields))

    def encode(self, columns: Sequence[pa.Array]) -> Ints:
        """Encode ``columns`` (one per field, of its type) as tuples: rows of words. For fewer
        columns than fields, the tuples' first words."""
        rows = len(columns[0]) if columns else 0
        out = np.zeros((rows, self.end(len(columns))), np.int64)
        for field, column, at in zip(self.fields, columns, self._starts, strict=False):
            self._write(field, column, out, at)
        return out

    def _write(self, field: TupleField, column: pa.Array, out: Ints, at: int) -> None:
        words, valid = self._words(field, column)
        if field.nullable:
            if valid is not None:
                out[:, at] = np.where(valid, 0, -1 if field.nulls_first else 1)
            at += 1
        for n, word in enumerate(words):
            if field.descending and field.kind.kind not in _TEXTS:
                word = ~word
            if valid is not None:
                word = np.where(valid, word, 0)
            out[:, at + n] = word

    def _words(self, field: TupleField, column: pa.Array) -> tuple[list[Ints], Bools | None]:
        if field.kind.kind in NESTED:
            return [self.pool.numbers(exact_text(column))], present(column)
        if field.kind.kind in _TEXTS:
            return [self.pool.numbers(column)], present(column)
        if field.kind.kind in FLOATING:
            return [_ordered(floats_of(column), field.exact)], present(column)
        if field.kind.kind is TypeKind.DECIMAL:
            pairs = halves(column)
            if not field.wide:
                return [pairs[:, 0]], present(column)
            return [pairs[:, 1], pairs[:, 0] ^ _SIGN], present(column)
        return [integers_of(column)], present(column)

    def decode(self, words: Ints, first: int = 0, end: int | None = None) -> list[pa.Array]:
        """Decode the columns of the fields from ``first`` to before ``end``."""
        return [
            self.column(words, n) for n in range(first, len(self.fields) if end is None else end)
        ]

    def column(self, words: Ints, number: int) -> pa.Array:
        """Decode the column of the field ``number``."""
        field, at = self.fields[number], self._starts[number]
        valid = None
        if field.nullable:
            valid = words[:, at] == 0
            if valid.all():
                valid = None
            at += 1
        values = words[:, at : at + 1 + field.wide]
        if field.descending and field.kind.kind not in _TEXTS:
            values = ~values
        return column_of(field, values, valid, self.pool)

    def end(self, fields: int) -> int:
        """Return the number of words that the first ``fields`` fields take."""
        return int(self._starts[fields])


def column_of(field: TupleField, words: Ints, valid: Bools | None, pool: Texts) -> pa.Array:
    """Decode a field's column from its ``words``, without the words for NULL."""
    target = arrow_type(field.kind)
    low = np.ascontiguousarray(words[:, -1])
    kind = field.kind.kind
    if kind in NESTED:
        return exact_value(pool.column(low, valid, pa.string()), field.kind)
    if kind in _TEXTS:
        return pool.column(low, valid, target)
    if kind is TypeKind.NULL:
        return pa.nulls(len(words))
    if kind is TypeKind.BOOLEAN:
        return pa.array(low != 0, mask=None if valid is None else ~valid)
    if kind is TypeKind.DECIMAL:
        high = words[:, 0] if field.wide else low >> np.int64(63)
        return decimal_column(low ^ _SIGN if field.wide else low, high, valid, target)
    if kind in FLOATING:
        bits = np.where(low < 0, low ^ _REST, low)
        values: np.typing.NDArray[Any] = bits.view(np.float64)
    else:
        values = low
    dtype = {1: np.int8, 2: np.int16, 4: np.int32, 8: np.int64}[target.bit_width // 8]
    if kind is TypeKind.FLOAT:
        values = values.astype(np.float32)
    elif kind is not TypeKind.DOUBLE:
        values = values.astype(dtype)
    return plain_column(values, valid, target)


def plain_column(
    values: np.typing.NDArray[Any], valid: Bools | None, target: pa.DataType
) -> pa.Array:
    """Return decoded ``values`` as a column of type ``target``, which has the same width."""
    buffers = [_bits(valid), pa.py_buffer(np.ascontiguousarray(values))]
    return pa.Array.from_buffers(target, len(values), buffers)


def decimal_column(low: Ints, high: Ints, valid: Bools | None, target: pa.DataType) -> pa.Array:
    """Return a decimal column from the low and high words of its unscaled values."""
    both = np.empty((len(low), 2), np.int64)
    both[:, 0] = low
    both[:, 1] = high
    return pa.Array.from_buffers(target, len(low), [_bits(valid), pa.py_buffer(both)])


def halves(column: pa.Array) -> Ints:
    """Return the low and high words of a decimal column's unscaled values, shape (n, 2)."""
    if not len(column):
        return np.empty((0, 2), np.int64)
    flat = np.frombuffer(column.buffers()[1], np.int64, 2 * len(column), 16 * column.offset)
    return flat.reshape(len(column), 2)


def integers_of(column: pa.Array) -> Ints:
    """Return a column of integers, booleans, dates or times as 64-bit integers."""
    kind = column.type
    if pa.types.is_null(kind):
        return np.zeros(len(column), np.int64)
    if pa.types.is_boolean(kind):
        column, kind = column.cast(pa.int8()), pa.int8()
    width = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}[kind.bit_width]
    return fixed(column, width).astype(np.int64, copy=False)


def floats_of(column: pa.Array) -> np.typing.NDArray[np.float64]:
    """Return an input column of floats as doubles; values at NULLs are undefined."""
    width = np.float32 if pa.types.is_float32(column.type) else np.float64
    return fixed(column, width).astype(np.float64, copy=False)


def _ordered(values: np.typing.NDArray[np.float64], exact: bool) -> Ints:
    values = values.copy() if exact else values + 0.0
    values[np.isnan(values)] = np.nan
    bits = values.view(np.int64)
    return np.where(bits < 0, bits ^ _REST, bits)


def _bits(valid: Bools | None) -> pa.Buffer | None:
    return None if valid is None else pa.py_buffer(np.packbits(valid, bitorder="little"))
