"""Columns of Protobuf messages: bytes of many messages of one type, decoded to Arrow arrays."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch_contract.connectors.schemas.declared import ProtoEnum
from anabranch_runtime.columns.arrays import Bools, Ints
from anabranch_runtime.columns.arrow_types import arrow_type
from anabranch_runtime.columns.nested import limits_of, lists, maps, structs
from anabranch_runtime.sources.decode import from_utf8, to_type
from anabranch_runtime.sources.invalid import convert_values
from anabranch_runtime.sources.protobuf import kernel
from anabranch_runtime.sources.protobuf.program import ProtoProgram, ProtoTarget
from anabranch_runtime.sources.schemas.values import bytes_column

#: Limits of Protobuf's times, in seconds: years 1 to 9999, and greatest duration.
_FIRST, _LAST, _LONGEST = -62_135_596_800, 253_402_300_799, 315_576_000_000
_MICROS, _NANOS = 1_000_000, 1_000_000_000


def read_columns(
    program: ProtoProgram, data: NDArray[np.uint8], begins: Ints, ends: Ints
) -> tuple[list[pa.Array], NDArray[np.uint8], Bools]:
    """Decode Protobuf messages of one type to columns.

    Args:
        program: the messages' type, resolved against the wanted columns.
        data: bytes of the messages. ``begins``, ``ends``: start and end of each message.

    Returns:
        The columns of good messages; ``GOOD``, ``BAD`` or ``MERGED`` for every message; the mask of
            good messages with a value that does not fit its column.
    """
    count, slots = len(begins), len(program.of)
    defaults = program.defaults.copy()
    if program.content:
        defaults[program.texts, 0] += len(data)
        data = np.concatenate([data, np.frombuffer(program.content, np.uint8)])
    bad = np.zeros(count, np.uint8)
    used = np.zeros(len(program.weights), np.int64)
    room = np.full(len(used), count, np.int64)
    base = np.zeros(slots + 1, np.int64)
    values, sizes = np.zeros(0, np.int64), np.zeros(0, np.int64)
    present = np.zeros(0, np.uint8)

    def read(write: bool) -> None:
        kernel.read_messages(
            data, begins, ends, program.nodes, program.fields, program.numbers, program.of,
            defaults, program.shown, base, values, sizes, present, used, program.weights, bad,
            write,
        )  # fmt: skip

    if len(used) > 1:
        read(write=False)
        room, used = used, np.zeros_like(used)
    each = room[program.of]
    base = limits_of(each)
    values, sizes = np.repeat(defaults[:, 0], each), np.repeat(defaults[:, 1], each)
    present = np.repeat(program.shown, each)
    read(write=True)
    made = _ReadSlots(
        data, base, program.of, used, values, sizes, present, np.zeros(used[0] + 1, np.bool_)
    )
    rows, unfit = np.arange(used[0]), np.zeros(used[0], np.bool_)
    columns = list[pa.Array]()
    for target in program.targets:
        made.unfit[:] = False
        column = made.column(target, rows, None)
        wrong = made.unfit[:-1]
        if wrong.any():
            column = column.take(pa.array(rows, mask=wrong))
            unfit |= wrong
        columns.append(column)
    return columns, bad, unfit


@dataclass(slots=True)
class _ReadSlots:
    """Values of Protobuf messages per slot (see ``kernel``), and the rows with a value that does
    not fit. The last slot is a dummy, for values that are not read."""

    data: NDArray[np.uint8]
    base: Ints
    of: Ints
    used: Ints
    values: Ints
    sizes: Ints
    present: NDArray[np.uint8]
    unfit: Bools

    def here(self, slot: int) -> slice:
        """Return the range in which a slot's decoded values are."""
        return slice(self.base[slot], self.base[slot] + self.used[self.of[slot]])

    def column(self, target: ProtoTarget, rows: Ints, alive: Bools | None) -> pa.Array:
        """Return the values of a target (column, or part of one) as an Arrow array.

        Args:
            target: target of a column, or of a part of it.
            rows: message of each value.
            alive: mask of values in messages that are present; None: all.
        """
        kind = arrow_type(target.kind)
        if not target.form:
            return pa.nulls(len(rows), kind)
        if target.form in ("array", "map"):
            return self._repeated(target, rows, alive)
        present = alive
        if target.slot >= 0:
            own = self.present[self.here(target.slot)].astype(np.bool_)
            present = own if alive is None else own & alive
            if present.all():
                present = None
        if target.form == "struct":
            if not target.parts:
                return pa.nulls(len(rows), kind)
            return structs([self.column(p, rows, present) for p in target.parts], present, kind)
        if target.form == "wrapper":
            return self.column(target.parts[0], rows, present)
        if target.form in ("timestamp", "duration"):
            return self._time(target, rows, present)
        convert = to_type(kind)
        if target.form == "text":
            # A text that is absent counts as empty.
            filled = self.sizes[self.here(target.slot)] > 0
            present = filled if present is None else present & filled
            convert = from_utf8(target.kind)
        found, wrong = convert_values(self._natural(target, present), kind, convert)
        if wrong is not None:
            self.unfit[rows[wrong]] = True
        return found

    def _natural(self, target: ProtoTarget, present: Bools | None) -> pa.Array:
        """Return the values of a Protobuf leaf field as an array of their own type."""
        here = self.here(target.slot)
        values, absent = self.values[here], None if present is None else ~present
        if target.form == "integer":
            return pa.array(values, mask=absent)
        if target.form == "unsigned":
            return pa.array(values.view(np.uint64), mask=absent)
        if target.form == "real":
            return pa.array(values.view(np.float64), mask=absent)
        if target.form == "boolean":
            return pa.array(values.astype(np.bool_), mask=absent)
        if target.enum is not None:
            return _names(target.enum, values, absent)
        sizes = self.sizes[here]
        if present is None:
            present = np.ones(len(values), np.bool_)
        return bytes_column(self.data, values, np.where(present, sizes, 0), present)

    def _repeated(self, target: ProtoTarget, rows: Ints, alive: Bools | None) -> pa.Array:
        limits = limits_of(self.values[self.here(target.slot)])
        owners = np.repeat(rows, np.diff(limits))
        if target.form == "array":
            values = self.column(target.parts[0], owners, None)
            return lists(limits, values, alive, arrow_type(target.kind))
        keys = self.column(target.parts[0], owners, None)
        if keys.null_count:
            # A key is NULL only in a row that does not fit its column.
            text = pa.types.is_string(keys.type) or pa.types.is_binary(keys.type)
            keys = keys.fill_null("" if text else pa.scalar(0, pa.int8()).cast(keys.type))
        kept = None
        if np.diff(limits).max(initial=0) > 1:
            places = np.repeat(np.arange(len(rows)), np.diff(limits))
            kept = _last_of(places, keys)
        if kept is None:
            return maps(limits, keys, self.column(target.parts[1], owners, None), alive)
        # Entries of a map that later entries replace need not fit the column.
        counted = np.full_like(owners, len(self.unfit) - 1)
        counted[kept] = owners[kept]
        values = self.column(target.parts[1], counted, None)
        limits = limits_of(np.bincount(places[kept], minlength=len(rows)))
        return maps(limits, keys.take(pa.array(kept)), values.take(pa.array(kept)), alive)

    def _time(self, target: ProtoTarget, rows: Ints, present: Bools | None) -> pa.Array:
        seconds, nanos = (self.values[self.here(p.slot)] for p in target.parts)
        if target.form == "timestamp":
            good = (seconds >= _FIRST) & (seconds <= _LAST) & (nanos >= 0) & (nanos < _NANOS)
        else:
            good = (seconds >= -_LONGEST) & (seconds <= _LONGEST) & (abs(nanos) < _NANOS)
            good &= np.sign(seconds) * np.sign(nanos) >= 0
        if not good.all():
            wrong = ~good if present is None else ~good & present
            self.unfit[rows[wrong]] = True
            present = good if present is None else good & present
        # Nanoseconds are cut to microseconds, in durations towards zero.
        micros = seconds * _MICROS + np.sign(nanos) * (abs(nanos) // 1000)
        absent = None if present is None else ~present
        return pa.array(micros, mask=absent).view(arrow_type(target.kind))


def _names(enum: ProtoEnum, values: Ints, absent: Bools | None) -> pa.Array:
    """Return the names of a Protobuf enum's numbers; a number without name becomes its digits."""
    names = {number: name for name, number in reversed(enum.values)}
    known = np.array(sorted(names), np.int64)
    places = np.minimum(np.searchsorted(known, values), len(known) - 1)
    texts = [names[number] for number in known.tolist()]
    strange = known[places] != values
    if strange.any():
        more, turn = np.unique(values[strange], return_inverse=True)
        places[strange] = len(texts) + turn
        texts += [str(number) for number in more.tolist()]
    return pa.array(texts).take(pa.array(places, mask=absent))


def _last_of(places: Ints, keys: Any) -> Ints | None:
    """Return the positions of each map's last entries per key; None: no key occurs twice."""
    encoded = pc.dictionary_encode(keys)
    number = encoded.indices.to_numpy(zero_copy_only=False) + places * len(encoded.dictionary)
    _, first = np.unique(number[::-1], return_index=True)
    return None if len(first) == len(number) else np.sort(len(number) - 1 - first)
