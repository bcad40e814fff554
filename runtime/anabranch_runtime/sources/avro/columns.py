"""Columns of Avro messages: bytes of many messages with one schema, decoded to Arrow arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.queries.types import NESTED, TypeKind
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import limits_of, lists, maps, structs
from anabranch_runtime.sources.avro import kernel
from anabranch_runtime.sources.avro.program import UUID_SIZE, AvroProgram, AvroTarget, form_of
from anabranch_runtime.sources.decode import to_type
from anabranch_runtime.sources.invalid import convert_values
from anabranch_runtime.sources.schemas.messages import ReadColumns
from anabranch_runtime.sources.schemas.values import bitmap, bytes_column

Bools = NDArray[np.bool_]
Ints = NDArray[np.int64]
_HEX = np.frombuffer(b"".join(b"%02x" % i for i in range(256)), np.uint8).reshape(256, 2)
#: Numbers of a UUID's hexadecimal digits that precede its hyphens.
_HYPHENS = (8, 12, 16, 20)
#: Unit of a number that is a date or time -> Arrow type.
_TIMES = {
    f"{local}timestamp-{unit}": pa.timestamp(short, None if local else "UTC")
    for local in ("", "local-")
    for unit, short in (("millis", "ms"), ("micros", "us"), ("nanos", "ns"))
}


def read_columns(
    program: AvroProgram, data: NDArray[np.uint8], begins: Ints, ends: Ints
) -> ReadColumns:
    """Decode Avro messages of one schema to columns.

    Args:
        program: types of the messages' schema, resolved against the wanted columns.
        data: bytes of the messages. ``begins``, ``ends``: start and end of each message.
    """
    kids = program.kids.copy()
    kids[program.places] += len(data)
    if program.symbols:
        data = np.concatenate([data, np.frombuffer(program.symbols, np.uint8)])
    count = len(begins)
    bad = np.zeros(count, np.bool_)
    used = np.zeros(program.slots, np.int64)
    room = np.full(program.slots, count, np.int64)
    nothing = np.zeros(0, np.int64)
    if program.repeats:
        kernel.read_messages(
            data, begins, ends, program.types, kids, used, nothing, nothing,
            nothing.astype(np.uint8), used, bad, write=False,
        )  # fmt: skip
        room, used = used, np.zeros(program.slots, np.int64)
    base = limits_of(room)
    values, sizes = np.empty(base[-1], np.int64), np.zeros(base[-1], np.int64)
    present = np.empty(base[-1], np.uint8)
    kernel.read_messages(
        data, begins, ends, program.types, kids, base, values, sizes, present, used, bad,
        write=True,
    )  # fmt: skip
    rows = np.arange(int(count - bad.sum()))
    unfit, columns = np.zeros(len(rows), np.bool_), list[pa.Array]()
    for target in program.targets:
        made = _SlotColumns(data, base, used, values, sizes, present, np.zeros(len(rows), np.bool_))
        column = made.column(target, rows)
        if made.unfit.any():
            column = column.take(pa.array(rows, mask=made.unfit))
            unfit |= made.unfit
        columns.append(column)
    return columns, bad, unfit


@dataclass(slots=True)
class _SlotColumns:
    """Values in slots (see ``kernel``) as columns, and the rows with a value that does not fit."""

    data: NDArray[np.uint8]
    base: Ints
    used: Ints
    values: Ints
    sizes: Ints
    present: NDArray[np.uint8]
    unfit: Bools

    def column(self, target: AvroTarget, rows: Ints) -> pa.Array:
        """Return the values of an Avro target as a column; ``rows``: row of each value."""
        kind = arrow_type(target.kind)
        if target.slot < 0:
            return _constant(target, len(rows))
        begin = self.base[target.slot]
        here = slice(begin, begin + self.used[target.slot])
        present = self.present[here].astype(np.bool_)
        valid = None if present.all() else present
        if target.kind.kind not in NESTED:
            return self._leaf(target, here, present, rows)
        if target.kind.kind is TypeKind.STRUCT:
            if not target.parts:
                # Every message has a NULL, or a value that does not fit the column.
                return pa.nulls(len(rows), kind)
            return structs([self.column(part, rows) for part in target.parts], valid, kind)
        if not target.parts:
            return pa.nulls(len(rows), kind)
        limits = limits_of(np.where(present, self.values[here], 0))
        owners = np.repeat(rows, np.diff(limits))
        parts = [self.column(part, owners) for part in target.parts]
        if target.kind.kind is TypeKind.ARRAY:
            return lists(limits, parts[0], valid, kind)
        # A key is NULL only in a row that does not fit its column.
        keys = parts[0].fill_null("") if parts[0].null_count else parts[0]
        return maps(limits, keys, parts[1], valid)

    def _leaf(self, target: AvroTarget, here: slice, present: Bools, rows: Ints) -> pa.Array:
        kind = arrow_type(target.kind)
        if target.source is None:
            return pa.nulls(len(rows), kind)
        form = form_of(target.source, target.kind)
        column, wrong = self._natural(form, here, present)
        if wrong is not None:
            self.unfit[rows[wrong]] = True
        converted, wrong = convert_values(column, kind, to_type(kind))
        if wrong is not None:
            self.unfit[rows[wrong]] = True
        return converted

    def _natural(self, form: str, here: slice, present: Bools) -> tuple[pa.Array, Bools | None]:
        """Return a slot's values as an array of their own type, and the mask of unfit values."""
        values, absent = self.values[here], ~present
        if form == "integer":
            return pa.array(values, mask=absent), None
        if form == "real":
            return pa.array(values.view(np.float64), mask=absent), None
        if form == "boolean":
            return pa.array(values.astype(np.bool_), mask=absent), None
        if form == "date":
            return pa.array(values.astype(np.int32), pa.date32(), mask=absent), None
        if form in _TIMES:
            return pa.array(values, mask=absent).view(_TIMES[form]), None
        if form.startswith("decimal"):
            return self._decimals(int(form.removeprefix("decimal ")), here, present)
        column = bytes_column(self.data, values, self.sizes[here], present)
        return (_uuids(column) if form == "uuid" else column), None

    def _decimals(self, scale: int, here: slice, present: Bools) -> tuple[pa.Array, Bools | None]:
        places, sizes = self.values[here], self.sizes[here]
        found, bad = np.zeros((len(places), 16), np.uint8), np.zeros(len(places), np.bool_)
        kernel.big_endian(self.data, places, sizes, found, bad)
        bad &= present
        good = present & ~bad
        buffers = [bitmap(good), pa.py_buffer(found)]
        column = pa.Array.from_buffers(pa.decimal128(38, scale), len(places), buffers)

        def checked(some: pa.Array) -> pa.Array:
            some.validate(full=True)
            return some

        column, wrong = convert_values(column, column.type, checked)
        return column, bad if wrong is None else bad | wrong


def _uuids(column: pa.Array) -> pa.Array:
    """Convert Avro's UUIDs of 16 bytes to texts."""
    some = column.drop_null()
    data = np.frombuffer(some.buffers()[2] or b"", np.uint8)[some.offset * UUID_SIZE :]
    digits = _HEX[data[: len(some) * UUID_SIZE].reshape(-1, UUID_SIZE)].reshape(-1, 2 * UUID_SIZE)
    texts = np.insert(digits, _HYPHENS, ord("-"), axis=1)
    limits = np.arange(len(some) + 1, dtype=np.int32) * texts.shape[1]
    buffers = [None, pa.py_buffer(limits), pa.py_buffer(np.ascontiguousarray(texts))]
    found = pa.Array.from_buffers(pa.string(), len(some), buffers)
    if not column.null_count:
        return found
    present = column.is_valid().to_numpy(zero_copy_only=False)
    return found.take(pa.array(np.cumsum(present) - 1, mask=~present))


def _constant(target: AvroTarget, count: int) -> pa.Array:
    """Return a column that the Avro messages lack: its default, ``count`` times."""
    if target.constant is None:
        return pa.nulls(count, arrow_type(target.kind))
    program, encoded = target.constant
    data = np.frombuffer(encoded, np.uint8)
    limits = np.zeros(1, np.int64), np.full(1, len(data), np.int64)
    columns, bad, unfit = read_columns(program, data, *limits)
    if bad.any() or unfit.any():
        return pa.nulls(count, arrow_type(target.kind))
    return columns[0].take(pa.array(np.zeros(count, np.int64)))
