"""Decoder of PostgreSQL's changes (protocol ``pgoutput``) to columns, without a loop in Python.

A message about a change has tuples: the new row, and the old row (its identity, or all columns). A
column of a tuple is NULL, text, or *unchanged*: a large value that an update has not changed, which
is then taken from the old row. :func:`_parse` records the position of each value in the messages;
:func:`_gathered` copies the values of a column into one buffer; then columns of text are converted
as in other sources (``sources.invalid``).
"""

from __future__ import annotations

import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
from numba import njit
from numpy.typing import NDArray

from anabranch_contract.protocol.registered import StreamRecord
from anabranch_contract.queries.types import DataType, TypeKind, parse_type
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.errors import SourceError
from anabranch_runtime.expressions.added_columns import added_values
from anabranch_runtime.sources.decode import from_text
from anabranch_runtime.sources.invalid import ARRIVED, convert_values, raw_text

#: Lengths in messages that stand for values without text.
_NULL, _UNCHANGED = -1, -2
#: Outcomes of :func:`_parse` other than success: an old row is incomplete, a value is missing.
_NO_OLD, _NO_VALUE = 1, 2
#: Operations of rows (``queries.changes``).
INSERT, DELETE = "i", "d"


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The layout of a PostgreSQL table's rows in messages about changes.

    Attributes:
        oid: id of the table.
        name: name of schema and table.
        columns: name, type id and type modifier of each column.
    """

    oid: int
    name: tuple[str, str]
    columns: tuple[tuple[str, int, int], ...]


def relation(message: bytes) -> RowLayout:
    """Parse a replication message that describes a table's layout."""
    oid, at = int.from_bytes(message[1:5], "big"), 5
    texts = []
    for _ in range(2):
        end = message.index(b"\0", at)
        texts.append(message[at:end].decode())
        at = end + 1
    count, at = int.from_bytes(message[at + 1 : at + 3], "big"), at + 3
    columns = []
    for _ in range(count):
        end = message.index(b"\0", at + 1)
        type, modifier = (
            int.from_bytes(message[end + i : end + i + 4], "big", signed=i > 1) for i in (1, 5)
        )
        columns.append((message[at + 1 : end].decode(), type, modifier))
        at = end + 9
    return RowLayout(oid, (texts[0] or "pg_catalog", texts[1]), tuple(columns))


def truncated(message: bytes) -> list[int]:
    """Return the ids of the PostgreSQL tables that a TRUNCATE message empties."""
    count = int.from_bytes(message[1:5], "big")
    return [int.from_bytes(message[6 + 4 * i : 10 + 4 * i], "big") for i in range(count)]


def rows_of(messages: Sequence[bytes], layout: RowLayout, record: StreamRecord) -> pa.RecordBatch:
    """Decode changes of one PostgreSQL table to the rows that they insert and delete, in order,
    with operation and raw input of invalid rows (``invalid.ARRIVED``).

    Raises:
        SourceError: an update or delete lacks values that the stream needs.
    """
    sizes = np.fromiter(map(len, messages), np.int64, len(messages))
    starts = np.concatenate(([0], np.cumsum(sizes)))
    buffer = np.frombuffer(b"".join(messages), np.uint8)
    names = [name for name, _, _ in layout.columns]
    assert record.changes is not None
    key = np.array([name in record.changes.key for name in names])
    wanted = {name for name, _ in record.tuple_columns}
    needed = np.array([name in wanted for name in names])
    operation, at, length, (fault, column) = _parse(buffer, starts, key, needed)
    place = ".".join(layout.name)
    if fault:
        what = (
            "an old row"
            if fault == _NO_OLD
            else f"the value of column {names[column]!r}, which is stored apart,"
        )
        raise SourceError(
            "incomplete-changes",
            f"{what} is missing in a change of the table",
            field=place,
            remedy=f"ALTER TABLE {place} REPLICA IDENTITY FULL, and register the stream again",
        )
    texts = {
        name: _text(buffer, at[:, i], length[:, i]) for i, name in enumerate(names) if needed[i]
    }
    return typed_rows(texts, operation, record)


def typed_rows(
    texts: Mapping[str, pa.Array], is_insert: NDArray[np.bool_], record: StreamRecord
) -> pa.RecordBatch:
    """Return rows of a PostgreSQL table as they land: the stream's columns, converted from text,
    and raw input of rows with unfit values. Added columns that the table lacks have their default.
    """
    arrays, bad = list[pa.Array](), np.zeros(len(is_insert), np.bool_)
    assert record.changes is not None
    for column in record.columns:
        kind = parse_type(column.type)
        if column.name == record.changes.operation:
            operations = pa.array([DELETE, INSERT], arrow_type(kind))
            arrays.append(operations.take(pa.array(is_insert.astype(np.int8))))
            continue
        if column.name not in texts:
            value = added_values(record.to_stream())[column.name]
            arrays.append(pa.repeat(value, len(is_insert)))
            continue
        values, wrong = convert_values(texts[column.name], arrow_type(kind), _reader(kind))
        arrays.append(values)
        if wrong is not None:
            bad |= wrong
    arrived = pa.nulls(len(is_insert), pa.binary())
    if bad.any():
        rows = pa.StructArray.from_arrays(list(texts.values()), list(texts))
        said = raw_text(rows.filter(pa.array(bad))).cast(pa.binary())
        places = np.cumsum(bad) - 1
        arrived = said.take(pa.array(places, mask=~bad))
    return pa.RecordBatch.from_arrays(
        [*arrays, arrived], [*(c.name for c in record.columns), ARRIVED]
    )


def _reader(kind: DataType) -> Callable[[pa.Array], pa.Array]:
    return _bytes if kind.kind is TypeKind.BINARY else from_text(kind)


def _bytes(column: pa.Array) -> pa.Array:
    """Convert PostgreSQL's text of binary values (``\\xdead``)."""
    values = [None if v is None else binascii.unhexlify(v[2:]) for v in column.to_pylist()]
    return pa.array(values, pa.binary())


def _text(buffer: NDArray[np.uint8], at: NDArray[np.int64], length: NDArray[np.int64]) -> pa.Array:
    offsets, data = _gathered(buffer, at, length)
    valid = np.packbits(length >= 0, bitorder="little")
    return pa.Array.from_buffers(
        pa.string(), len(at), [pa.py_buffer(valid), pa.py_buffer(offsets), pa.py_buffer(data)]
    )


@njit(cache=True, nogil=True)
def _number(buffer: Any, at: int, size: int) -> int:
    found = 0
    for i in range(size):
        found = found * 256 + int(buffer[at + i])
    return found


@njit(cache=True, nogil=True)
def _tuple(buffer: Any, at: int, places: Any, lengths: Any) -> int:
    """Record positions and lengths of the values of the tuple at ``at``; return the tuple's end."""
    count = _number(buffer, at, 2)
    at += 2
    for i in range(count):
        kind = buffer[at]
        at += 1
        if kind == 116:  # text
            size = _number(buffer, at, 4)
            places[i], lengths[i] = at + 4, size
            at += 4 + size
        elif kind == 117:
            places[i], lengths[i] = 0, _UNCHANGED
        else:
            places[i], lengths[i] = 0, _NULL
    return at


@njit(cache=True, nogil=True)
def _same(buffer: Any, a: int, b: int, size: int) -> bool:
    return np.array_equal(buffer[a : a + size], buffer[b : b + size])


@njit(cache=True, nogil=True)
def _parse(buffer: Any, starts: Any, key: Any, needed: Any) -> Any:
    """Find the rows in PostgreSQL's messages about changes.

    Args:
        buffer: the messages (insert, update or delete), one after the other.
        starts: the place of each message, and the end.
        key: mask of columns of the stream's key; none: updates and deletes need complete old rows.
        needed: which columns the stream has.

    Returns:
        Whether each row inserts; place and length of each value; a fault (0: none) and a column.
    """
    count, width = len(starts) - 1, len(key)
    keyed = key.any()
    inserts = np.empty(2 * count, np.bool_)
    at = np.empty((2 * count, width), np.int64)
    length = np.empty((2 * count, width), np.int64)
    old_at, old_length = np.empty(width, np.int64), np.empty(width, np.int64)
    rows, fault, where = 0, 0, 0
    for m in range(count):
        place = starts[m] + 5
        has_old = False
        if buffer[starts[m]] != 73:  # not an insert
            if buffer[place] == 75 or buffer[place] == 79:
                has_old = True
                if buffer[place] == 75 and not keyed:
                    fault = _NO_OLD
                place = _tuple(buffer, place + 1, old_at, old_length)
            elif not keyed:
                fault = _NO_OLD
        if buffer[starts[m]] == 68:
            for i in range(width):
                at[rows, i] = old_at[i]
                length[rows, i] = old_length[i] if key[i] or not keyed else _NULL
            inserts[rows] = False
            rows += 1
            continue
        # The new row is recorded one position later, so that the old row precedes it.
        _tuple(buffer, place + 1, at[rows + 1], length[rows + 1])
        moved = has_old and not keyed
        for i in range(width):
            if length[rows + 1, i] == _UNCHANGED:
                if has_old and old_length[i] != _UNCHANGED:
                    at[rows + 1, i], length[rows + 1, i] = old_at[i], old_length[i]
                    if old_length[i] == _NULL and needed[i]:
                        # An old row that is only an identity has NULL for (large) TOAST values.
                        fault, where = _NO_VALUE, i
                elif needed[i]:
                    fault, where = _NO_VALUE, i
            if has_old and key[i] and not moved:
                moved = old_length[i] != length[rows + 1, i] or not _same(
                    buffer, old_at[i], at[rows + 1, i], max(old_length[i], 0)
                )
        if moved:
            for i in range(width):
                at[rows, i] = old_at[i]
                length[rows, i] = old_length[i] if key[i] or not keyed else _NULL
            inserts[rows] = False
            inserts[rows + 1] = True
            rows += 2
        else:
            at[rows], length[rows] = at[rows + 1], length[rows + 1]
            inserts[rows] = True
            rows += 1
    return inserts[:rows], at[:rows], length[:rows], (fault, where)


@njit(cache=True, nogil=True)
def _gathered(buffer: Any, at: Any, length: Any) -> Any:
    """Copy the values of a column of changes into one buffer; return their offsets and bytes."""
    offsets = np.zeros(len(at) + 1, np.int32)
    for i in range(len(at)):
        offsets[i + 1] = offsets[i] + max(length[i], 0)
    data = np.empty(offsets[-1], np.uint8)
    for i in range(len(at)):
        size = max(length[i], 0)
        data[offsets[i] : offsets[i] + size] = buffer[at[i] : at[i] + size]
    return offsets, data
