"""Decoder from CSV to typed record batches.

A compiled scanner (``contract.connectors.csv_text.scan``) finds records and fields. Arrow extracts
the fields of a column from the bytes without copying them one by one, and casts all of them
together. A record is invalid, without affecting others, if it is malformed, has too few or too many
fields, is not UTF-8, or has a value that does not fit its column's type.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numba import njit
from numpy.typing import NDArray

from anabranch_contract.connectors import csv_text
from anabranch_contract.connectors.csv_text import ESCAPED, MALFORMED, PLAIN, CsvDialect
from anabranch_contract.queries.types import DataType, TypeKind, parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.sources.decode import Columns, from_text
from anabranch_runtime.sources.invalid import Decoded, convert_values, split, unreadable


class MissingColumn(ValueError):
    """Error: a CSV file's header lacks a column of the stream."""

    def __init__(self, column: str, header: Sequence[str]) -> None:
        super().__init__(f"no column {column!r}")
        self.column, self.header = column, header


_scan: Any = njit(cache=True, nogil=True)(csv_text.scan)
_TEXTUAL = frozenset({TypeKind.STRING, TypeKind.BINARY})


@dataclass(frozen=True, slots=True)
class Scanned:
    """Positions of a CSV's records and fields in ``data``, and the number of scanned bytes."""

    data: bytes
    starts: NDArray[np.int32]
    stops: NDArray[np.int32]
    marks: NDArray[np.int8]
    firsts: NDArray[np.int32]
    begins: NDArray[np.int32]
    ends: NDArray[np.int32]
    used: int

    def __len__(self) -> int:
        return len(self.begins)

    def raw(self, numbers: NDArray[np.int64]) -> pa.Array:
        """Return the bytes of the CSV records with these ``numbers``."""
        return _spans(self.data, self.begins, self.ends, pa.binary()).take(pa.array(2 * numbers))


def scanned(data: bytes, dialect: CsvDialect, *, final: bool, most: int | None = None) -> Scanned:
    """Find the records of ``data`` with the compiled ``csv_text.scan``."""
    codes = dialect.codes
    lines, fields = csv_text.room(data, codes[0])
    most = lines if most is None else min(most, lines)
    starts, stops = np.empty(fields, np.int32), np.empty(fields, np.int32)
    marks, firsts = np.empty(fields, np.int8), np.empty(lines + 1, np.int32)
    bounds = np.empty(2 * lines, np.int32)
    count, used = _scan(
        np.frombuffer(data, np.uint8), 0, len(data), final, most, *codes,
        starts, stops, marks, firsts, bounds,
    )  # fmt: skip
    firsts = firsts[: count + 1]
    ends = bounds[: 2 * count]
    return Scanned(
        data, starts[: firsts[-1]], stops[: firsts[-1]], marks[: firsts[-1]],
        firsts, ends[0::2], ends[1::2], used,
    )  # fmt: skip


def warm() -> None:
    """Compile the CSV scanner, or load it from the cache."""
    scanned(b"a\n", CsvDialect(), final=True)


@dataclass(frozen=True, slots=True)
class CsvLayout:
    """Positions of a stream's columns in one CSV file.

    Attributes:
        columns: names and SQL types.
        positions: position of each column among a record's fields; -1: the column is NULL.
        fields: number of fields of a record.
        begin: byte offset of the first record after the header.
    """

    dialect: CsvDialect
    columns: Columns
    positions: tuple[int, ...]
    fields: int
    begin: int

    def decode(self, data: bytes, *, final: bool) -> tuple[list[Decoded], int]:
        """Decode the complete CSV records in ``data``; return rows, and the number of bytes."""
        found = scanned(data, self.dialect, final=final)
        if not len(found):
            return [], found.used
        last = found.firsts[1:] - 1
        wrong = (np.diff(found.firsts) != self.fields) | (found.marks[last] == MALFORMED)
        if not data.isascii():
            wrong |= _no_text(found)
        kinds = [(name, parse_type(kind)) for name, kind in self.columns]
        schema = pa.schema([(name, arrow_type(kind)) for name, kind in kinds])
        decoded = []
        if wrong.any():
            decoded.append(unreadable(schema, found.raw(np.flatnonzero(wrong))))
        rows: NDArray[np.int64] = np.flatnonzero(~wrong)
        if len(rows):
            decoded.append(self._rows(found, rows, kinds, schema))
        return decoded, found.used

    def _rows(
        self,
        found: Scanned,
        rows: NDArray[np.int64],
        kinds: list[tuple[str, DataType]],
        schema: pa.Schema,
    ) -> Decoded:
        fields = _spans(found.data, found.starts, found.stops, pa.string())
        arrays: list[pa.Array] = []
        bad: NDArray[np.bool_] | None = None
        for (_, kind), position in zip(kinds, self.positions, strict=True):
            if position < 0:
                arrays.append(pa.nulls(len(rows), arrow_type(kind)))
                continue
            texts = self._texts(found, fields, found.firsts[rows].astype(np.int64) + position, kind)
            column, wrong = convert_values(texts, arrow_type(kind), from_text(kind))
            arrays.append(column)
            if wrong is not None:
                bad = wrong if bad is None else bad | wrong
        tuples = pa.RecordBatch.from_arrays(arrays, schema=schema)
        return split(tuples, bad, lambda which: found.raw(rows[which.to_numpy()]))

    def _texts(
        self, found: Scanned, fields: pa.Array, which: NDArray[np.int64], kind: DataType
    ) -> pa.Array:
        """Return the texts of CSV fields; vectorised form of ``CsvDialect.text``."""
        dialect, marks = self.dialect, found.marks[which]
        texts = fields.take(pa.array(2 * which))
        escaped = marks == ESCAPED
        if escaped.any():
            mask = pa.array(escaped)
            pattern, replacement = dialect.escapes
            plain = pc.replace_substring_regex(texts.filter(mask), pattern, replacement)
            texts = pc.replace_with_mask(texts, mask, plain)
        quoted, empty = marks != PLAIN, found.stops[which] == found.starts[which]
        if dialect.empty and (empty & quoted).any():
            texts = pc.if_else(pa.array(empty & quoted), dialect.empty, texts)
            empty = empty & ~quoted
        null = pc.equal(texts, dialect.null).to_numpy(zero_copy_only=False)
        if not dialect.quoted_null:
            null = null & ~quoted
        if kind.kind not in _TEXTUAL:
            null = null | empty
        elif dialect.quoted_null:
            null = null | (empty & ~quoted)
        return pc.if_else(pa.array(null), pa.scalar(None, pa.string()), texts)


def csv_layout(
    head: bytes,
    dialect: CsvDialect,
    columns: Columns,
    *,
    final: bool,
    optional: frozenset[str] = frozenset(),
) -> CsvLayout | None:
    """Return the layout of a CSV file that begins with ``head``; None if ``head`` is too short.

    Args:
        optional: columns that a header may lack.

    Raises:
        ValueError: the header is malformed, or names a column twice.
        MissingColumn: the header lacks a column.
    """
    begin = len(csv_text.BOM) if head.startswith(csv_text.BOM) else 0
    names = [name for name, _ in columns]
    if not dialect.header:
        return CsvLayout(dialect, columns, tuple(range(len(names))), len(names), begin)
    found = scanned(head[begin:], dialect, final=final, most=1)
    if not len(found):
        # An empty file has neither a header nor rows.
        return CsvLayout(dialect, columns, (0,) * len(names), 0, len(head)) if final else None
    record = next(csv_text.records(head[begin : begin + found.used], dialect, 1))
    header = csv_text.header_of(record, dialect)
    positions = csv_text.positions(header, names)
    for name in names:
        if name not in positions and name not in optional:
            raise MissingColumn(name, header)
    return CsvLayout(
        dialect,
        columns,
        tuple(positions.get(n, -1) for n in names),
        len(header),
        begin + found.used,
    )


def _spans(
    data: bytes, starts: NDArray[np.int32], stops: NDArray[np.int32], kind: pa.DataType
) -> pa.Array:
    """Return ``data`` as a binary array, without a copy: at even positions the bytes of the
    disjoint, ascending ranges, and at odd positions the bytes between these."""
    offsets = np.empty(2 * len(starts), np.int32)
    offsets[0::2], offsets[1::2] = starts, stops
    buffers = [None, pa.py_buffer(offsets), pa.py_buffer(data)]
    return pa.Array.from_buffers(kind, max(len(offsets) - 1, 0), buffers)


def _no_text(found: Scanned) -> NDArray[np.bool_]:
    """Return the mask of CSV records that are not UTF-8."""
    try:
        found.data[: found.used].decode()
    except UnicodeDecodeError:
        numbers = np.arange(len(found))
        _, wrong = convert_values(
            found.raw(numbers), pa.string(), lambda raw: raw.cast(pa.string())
        )
        if wrong is not None:
            return wrong
    return np.zeros(len(found), np.bool_)


if __name__ == "__main__":
    warm()
