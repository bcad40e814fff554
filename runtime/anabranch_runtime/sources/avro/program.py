"""Decoding programs: types of a writer's Avro schema, resolved against the columns of a stream.

A column is the field of its name, or of an alias that the reader's schema gives it. A field without
a column is skipped. A column without a field has the default of the reader's schema, else NULL; the
same holds for the fields of structs. :data:`_FITTING` has the types that fit a column; all other
types are *wrong*: each message with a value of such a type is invalid.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.connectors.schemas.avro import AvroField, AvroSchema, AvroType
from anabranch_contract.queries.types import INTEGRAL, TIMESTAMPS, DataType, TypeKind
from anabranch_runtime.sources.avro import kernel

_KINDS = {
    "null": kernel.NULL, "boolean": kernel.BOOLEAN, "int": kernel.INT, "long": kernel.LONG,
    "float": kernel.SINGLE, "double": kernel.DOUBLE, "bytes": kernel.BYTES,
    "string": kernel.BYTES, "fixed": kernel.FIXED, "enum": kernel.ENUM, "record": kernel.RECORD,
    "array": kernel.ARRAY, "map": kernel.MAP, "union": kernel.UNION,
}  # fmt: skip
#: Maximum digits of a decimal, and bytes of a UUID.
MOST_DIGITS, UUID_SIZE = 38, 16
_TEMPORAL = TIMESTAMPS | {TypeKind.DATE}
_NUMBERS = frozenset({*INTEGRAL, TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.DECIMAL})
_REAL = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_BYTES = frozenset({TypeKind.STRING, TypeKind.BINARY})
#: Type of a leaf (logical or plain) -> kinds of columns that can have its values.
_FITTING: dict[str | tuple[str, str], frozenset[TypeKind]] = {
    "boolean": frozenset({TypeKind.BOOLEAN}), "int": _NUMBERS, "long": _NUMBERS, "float": _REAL,
    "double": _REAL, "string": _BYTES, "bytes": _BYTES, "fixed": frozenset({TypeKind.BINARY}),
    "enum": frozenset({TypeKind.STRING}),
    ("int", "date"): frozenset({*INTEGRAL, TypeKind.DATE, TypeKind.TIMESTAMP_NTZ}),
    **{("long", f"timestamp-{unit}"): frozenset({TypeKind.BIGINT, TypeKind.TIMESTAMP})
       for unit in ("millis", "micros", "nanos")},
    **{("long", f"local-timestamp-{unit}"): frozenset({TypeKind.BIGINT, TypeKind.TIMESTAMP_NTZ})
       for unit in ("millis", "micros", "nanos")},
    ("bytes", "decimal"): frozenset({TypeKind.DECIMAL, TypeKind.BINARY}),
    ("fixed", "decimal"): frozenset({TypeKind.DECIMAL, TypeKind.BINARY}),
    ("fixed", "uuid"): frozenset({TypeKind.STRING, TypeKind.BINARY}),
}  # fmt: skip


@dataclass(slots=True)
class AvroTarget:
    """Slot that has the values of a column, or of a part of a nested column.

    Attributes:
        slot: number of its slot; -1: all rows have ``constant``.
        source: the leaf's type in the writer's schema.
        parts: targets of a struct's fields, an array's elements, a map's keys and values.
        constant: a program for the default of the reader's schema, and its encoding; None: NULL.
    """

    kind: DataType
    slot: int = -1
    source: AvroType | None = None
    parts: list[AvroTarget] = field(default_factory=list)
    constant: tuple[AvroProgram, bytes] | None = None

    def slots(self) -> list[int]:
        """Slots in which a row has a value even where the target's value is NULL."""
        own = [self.slot] if self.slot >= 0 else []
        if self.kind.kind is TypeKind.STRUCT:
            own += [slot for part in self.parts for slot in part.slots()]
        return own


@dataclass(frozen=True, slots=True)
class AvroProgram:
    """A resolved schema: arguments of the kernel, and the targets of the columns.

    Attributes:
        types, kids: see ``kernel``. Positions of symbols in ``kids`` are relative to ``symbols``.
        symbols: the texts of all symbols of enums, concatenated.
        places: indexes in ``kids`` of the positions of symbols.
        slots: number of slots. ``repeats``: whether a message may have several values for one slot.
    """

    types: NDArray[np.int64]
    kids: NDArray[np.int64]
    symbols: bytes
    places: NDArray[np.int64]
    slots: int
    targets: tuple[AvroTarget, ...]
    repeats: bool


def program_of(
    writer: AvroSchema, columns: Sequence[tuple[str, DataType]], reader: AvroSchema | None = None
) -> AvroProgram:
    """Resolve a writer's schema against columns.

    Args:
        writer: the schema with which messages were written.
        columns: names and types.
        reader: the schema from which aliases and defaults are taken.
    """
    made = _SchemaCompiler(writer, reader)
    made.types.append([0] * 8)
    root = reader.root if reader is not None else None
    targets = made.record(0, writer.root, columns, root, -1)
    return made.program(targets)


@dataclass(slots=True)
class _SchemaCompiler:
    writer: AvroSchema
    reader: AvroSchema | None
    types: list[list[int]] = field(default_factory=list)
    kids: list[int] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    symbols: bytes = b""
    slots: int = 0
    repeats: bool = False
    #: Named type -> row of the program by which its values are skipped.
    _skipped: dict[str, int] = field(default_factory=dict)

    def program(self, targets: Sequence[AvroTarget]) -> AvroProgram:
        return AvroProgram(
            np.array(self.types, np.int64),
            np.array(self.kids, np.int64),
            self.symbols,
            np.array(self.places, np.int64),
            self.slots,
            tuple(targets),
            self.repeats,
        )

    def slot(self) -> int:
        self.slots += 1
        return self.slots - 1

    def record(
        self,
        row: int,
        type: AvroType,
        columns: Sequence[tuple[str, DataType]],
        reader: AvroType | None,
        slot: int,
    ) -> list[AvroTarget]:
        """Write a record's type to ``row`` of the program; return the targets of its columns."""
        hints = {f.name: f for f in reader.fields} if reader is not None else {}
        names = {f.name for f in type.fields}
        wanted = dict[str, int]()
        targets = list[AvroTarget]()
        for number, (name, kind) in enumerate(columns):
            hint = hints.get(name)
            given = (name, *(hint.aliases if hint is not None else ()))
            found = next((n for n in given if n in names and n not in wanted), None)
            if found is None:
                targets.append(self._missing(kind, hint))
            else:
                wanted[found] = number
                targets.append(self.target(kind))
        kids = list[int]()
        for one in type.fields:
            if one.name in wanted:
                number = wanted[one.name]
                hint = hints.get(columns[number][0])
                kids.append(self.type(one.type, targets[number], hint.type if hint else None))
            else:
                kids.append(self.skip(one.type))
        self._set(row, kernel.RECORD, kids, slot)
        return targets

    def target(self, kind: DataType) -> AvroTarget:
        return AvroTarget(kind, self.slot())

    def _missing(self, kind: DataType, hint: AvroField | None) -> AvroTarget:
        if hint is None or hint.default is None or self.reader is None:
            return AvroTarget(kind)
        # A default is read as the only field of a message.
        record = AvroType("record", fields=(AvroField("x", hint.type),))
        program = program_of(AvroSchema(record, self.reader.named), [("x", kind)])
        try:
            encoded = _encoded(json.loads(hint.default), hint.type, self.reader)
        except (ValueError, TypeError, LookupError, AttributeError, OverflowError):
            return AvroTarget(kind)
        return AvroTarget(kind, constant=(program, encoded))

    def _set(self, row: int, kind: int, kids: Sequence[int], slot: int = -1) -> None:
        self.types[row][: kernel.SLOT + 1] = [kind, 0, len(self.kids), len(kids), slot]
        self.kids += kids

    def _new(self) -> int:
        self.types.append([0] * 8)
        return len(self.types) - 1

    def skip(self, type: AvroType) -> int:
        """Return the program's row of an Avro type whose values are skipped."""
        if type.kind == "name" and type.name in self._skipped:
            return self._skipped[type.name]
        row = self._new()
        if type.kind == "name":
            self._skipped[type.name] = row
        found = self.writer.resolved(type)
        parts = [one.type for one in found.fields] or found.parts
        if found.kind == "enum":
            self._enum(row, found, -1)
            return row
        self._set(row, _KINDS[found.kind], [self.skip(part) for part in parts])
        self.types[row][kernel.ARGUMENT] = found.size if found.kind == "fixed" else -1
        return row

    def _enum(self, row: int, type: AvroType, slot: int) -> None:
        kids = list[int]()
        for symbol in type.symbols:
            text = symbol.encode()
            kids += [len(self.symbols), len(text)]
            self.symbols += text
        self._set(row, kernel.ENUM, kids, slot)
        self.types[row][kernel.COUNT] = len(type.symbols)
        first = self.types[row][kernel.FIRST]
        self.places += range(first, first + len(kids), 2)

    def type(self, type: AvroType, target: AvroTarget, reader: AvroType | None) -> int:
        """Return the program's row of an Avro type whose values are written to ``target``."""
        found = self.writer.resolved(type)
        row = self._new()
        if found.kind == "union":
            branches = [self.writer.resolved(part) for part in found.parts]
            if any(_is_real(branch) and _fits(branch, target.kind) for branch in branches):
                target.source = AvroType("double")
            # The branch for NULL is resolved last: a NULL is written to all slots of a struct,
            # which are known only after the other branches.
            order = sorted(range(len(branches)), key=lambda i: branches[i].kind == "null")
            kids = {i: self.type(found.parts[i], target, reader) for i in order}
            self._set(row, kernel.UNION, [kids[i] for i in range(len(branches))])
        elif found.kind == "null":
            slots = target.slots()
            self.types[row][kernel.SLOT] = -1
            self.types[row][kernel.ABSENT] = len(self.kids)
            self.types[row][kernel.ABSENT_COUNT] = len(slots)
            self.kids += slots
        elif not _fits(found, target.kind) or not _agrees(found, target):
            self._set(row, kernel.WRONG, [])
        elif found.kind == "record":
            hint = self._hint(reader, target.kind)
            target.parts = self.record(row, found, target.kind.fields, hint, target.slot)
        elif found.kind in ("array", "map"):
            self._repeated(row, found, target, self._hint(reader, target.kind))
        else:
            target.source = target.source or found
            if found.kind == "enum":
                self._enum(row, found, target.slot)
            else:
                self._set(row, _KINDS[found.kind], [], target.slot)
                self.types[row][kernel.ARGUMENT] = found.size
            self.types[row][kernel.FLOAT] = int(_is_real(target.source))
        return row

    def _repeated(
        self, row: int, type: AvroType, target: AvroTarget, hint: AvroType | None
    ) -> None:
        self.repeats = True
        target.parts = [self.target(kind) for _, kind in target.kind.fields]
        inner = hint.parts[0] if hint is not None else None
        kid = self.type(type.parts[0], target.parts[-1], inner)
        self._set(row, _KINDS[type.kind], [kid], target.slot)
        if type.kind == "map":
            target.parts[0].source = AvroType("string")
            self.types[row][kernel.ARGUMENT] = target.parts[0].slot

    def _hint(self, reader: AvroType | None, kind: DataType) -> AvroType | None:
        """Return the nested type of the reader's schema that corresponds to a column, or None."""
        if reader is None or self.reader is None:
            return None
        found = self.reader.resolved(reader)
        branches = found.parts if found.kind == "union" else (found,)
        resolved = (self.reader.resolved(branch) for branch in branches)
        return next((b for b in resolved if b.kind != "null" and _fits(b, kind)), None)


def _is_real(type: AvroType) -> bool:
    return type.kind in ("float", "double")


def _fits(type: AvroType, kind: DataType) -> bool:
    """Whether values of an Avro type can be values of a column; nested types by their form."""
    if type.kind == "record":
        return kind.kind is TypeKind.STRUCT
    if type.kind == "array":
        return kind.kind is TypeKind.ARRAY
    if type.kind == "map":
        return kind.kind is TypeKind.MAP and _fits(AvroType("string"), kind.fields[0][1])
    if type.logical == "decimal" and not 0 < type.precision <= MOST_DIGITS:
        type = AvroType(type.kind)
    if type.logical == "uuid" and type.kind == "fixed" and type.size != UUID_SIZE:
        type = AvroType(type.kind)
    fitting = _FITTING.get((type.kind, type.logical)) or _FITTING.get(type.kind, frozenset())
    return kind.kind in fitting


def form_of(type: AvroType, kind: DataType) -> str:
    """Return how values of an Avro leaf type are converted for the column (``form``).

    >>> form_of(AvroType("long", logical="timestamp-millis"), DataType(TypeKind.TIMESTAMP))
    'timestamp-millis'
    >>> form_of(AvroType("enum"), DataType(TypeKind.STRING))
    'bytes'
    """
    if kind.kind in INTEGRAL:
        return "integer"
    if kind.kind is TypeKind.BINARY:
        return "bytes"
    if kind.kind is TypeKind.DECIMAL and type.logical == "decimal":
        return f"decimal {type.scale}"
    if kind.kind in _TEMPORAL:
        return type.logical
    if type.kind in ("int", "long"):
        return "integer"
    if type.kind in ("float", "double"):
        return "real"
    if type.kind == "boolean":
        return "boolean"
    return "uuid" if type.kind == "fixed" else "bytes"


def _agrees(type: AvroType, target: AvroTarget) -> bool:
    """Whether a type in a union has values of the same form as the types before it with this
    target. Of several nested types, only the first one is read."""
    if type.kind in ("record", "array", "map"):
        return not target.parts
    if target.source is None:
        return True
    known, found = form_of(target.source, target.kind), form_of(type, target.kind)
    return known == found or (known == "real" and found == "integer")


def _encoded(value: Any, type: AvroType, schema: AvroSchema) -> bytes:
    """Return the binary encoding of a default, which is JSON.

    Raises:
        ValueError, TypeError, KeyError: the value is not of the type.
    """
    type = schema.resolved(type)
    if type.kind == "null":
        return b""
    if type.kind == "boolean":
        return bytes([bool(value)])
    if type.kind in ("int", "long"):
        return _varint(int(value))
    if type.kind in ("float", "double"):
        return struct.pack("<f" if type.kind == "float" else "<d", float(value))
    if type.kind == "enum":
        return _varint(type.symbols.index(value))
    if type.kind in ("string", "bytes", "fixed"):
        # In the JSON text of a default, code points stand for the bytes.
        given = str(value).encode("utf-8" if type.kind == "string" else "latin-1")
        return given if type.kind == "fixed" else _varint(len(given)) + given
    if type.kind == "union":
        return _varint(0) + _encoded(value, type.parts[0], schema)
    if type.kind == "record":
        fields = [(f, value[f.name] if f.name in value else json.loads(f.default or "null"))
                  for f in type.fields]  # fmt: skip
        return b"".join(_encoded(one, f.type, schema) for f, one in fields)
    items = value.items() if type.kind == "map" else [(None, one) for one in value]
    found = b"".join(
        (b"" if key is None else _varint(len(key.encode())) + key.encode())
        + _encoded(one, type.parts[0], schema)
        for key, one in items
    )
    return (_varint(len(value)) + found if value else b"") + _varint(0)


def _varint(number: int) -> bytes:
    left, found = (number << 1) ^ (number >> 63), bytearray()
    while left > 127:
        found.append(left & 127 | 128)
        left >>= 7
    return bytes([*found, left])
