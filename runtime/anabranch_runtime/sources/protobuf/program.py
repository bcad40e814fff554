"""Decoding programs: a Protobuf message's fields, resolved against the columns of a stream.

A column is the field of its name; the same holds for the fields of structs. A field without a
column is skipped, a column without a field is NULL. :data:`_FITTING` has the types that fit a
column; all other types are *wrong*: each message with a value of such a type is invalid.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from anabranch_contract.connectors.schemas.declared import (
    INTEGERS,
    ProtoEnum,
    ProtoField,
    ProtoMessage,
    ProtoSchema,
    default_of,
)
from anabranch_contract.connectors.schemas.protobuf import DURATION, TIMESTAMP, WRAPPERS
from anabranch_contract.queries.types import (
    INTEGRAL,
    TIMESTAMPS,
    DataType,
    TypeKind,
    whole_interval,
)
from anabranch_runtime.sources.protobuf import kernel

#: Type of a field -> kind of the kernel's field, and wire type.
_KINDS = {
    "int32": (kernel.INT32, 0), "int64": (kernel.INT64, 0), "uint32": (kernel.UINT32, 0),
    "uint64": (kernel.INT64, 0), "sint32": (kernel.SINT32, 0), "sint64": (kernel.SINT64, 0),
    "bool": (kernel.BOOL, 0), "enum": (kernel.ENUM, 0), "fixed32": (kernel.FIXED32, 5),
    "sfixed32": (kernel.SFIXED32, 5), "float": (kernel.SINGLE, 5), "fixed64": (kernel.FIXED64, 1),
    "sfixed64": (kernel.FIXED64, 1), "double": (kernel.FIXED64, 1), "string": (kernel.BYTES, 2),
    "bytes": (kernel.BYTES, 2), "message": (kernel.MESSAGE, 2), "group": (kernel.GROUP, 3),
}  # fmt: skip
_REAL = frozenset({TypeKind.FLOAT, TypeKind.DOUBLE})
_BYTES = frozenset({TypeKind.STRING, TypeKind.BINARY})
#: Kinds of columns whose values may be text, as in JSON, since Protobuf has no such types.
TEXTUAL = frozenset({TypeKind.DECIMAL, TypeKind.DATE, *TIMESTAMPS})
#: Type of a field -> kinds of columns that can have its values.
_FITTING: dict[str, frozenset[TypeKind]] = {
    **dict.fromkeys(INTEGERS, frozenset({*INTEGRAL, *_REAL, TypeKind.DECIMAL})),
    "bool": frozenset({TypeKind.BOOLEAN}), "float": _REAL, "double": _REAL,
    "string": _BYTES | TEXTUAL, "bytes": _BYTES, "enum": frozenset({TypeKind.STRING, *INTEGRAL}),
}  # fmt: skip
_INTERVAL = whole_interval(TypeKind.INTERVAL)
#: Fields of Protobuf's messages for times, and their types as columns.
_TIME = (("seconds", DataType(TypeKind.BIGINT)), ("nanos", DataType(TypeKind.INT)))


@dataclass(slots=True)
class ProtoTarget:
    """Slot with the values of a column, or of a part of a nested column, and their conversion.

    Attributes:
        kind: type of the column.
        form: conversion of the values: for leaves ``integer``, ``unsigned``, ``real``, ``boolean``,
            ``bytes``, ``text``, ``enum``; for messages ``struct``, ``timestamp``, ``duration``,
            ``wrapper``; ``array``, ``map``; empty: all are NULL.
        slot: slot of the values, of the presence of messages, or of numbers of elements; -1: all
            are present.
        enum: enum of the values.
        parts: targets of a message's fields, an array's elements, a map's keys and values.
    """

    kind: DataType
    form: str = ""
    slot: int = -1
    enum: ProtoEnum | None = None
    parts: list[ProtoTarget] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class ProtoProgram:
    """A resolved message type: arguments of the kernel, and the targets of the columns.

    Attributes:
        nodes, fields: rows of messages and of fields. ``numbers``: numbers of closed enums.
        of: domain of each slot. ``weights``: number of slots of each domain.
        defaults: per slot, value and size in a new row; positions of bytes are relative to
            ``content``. ``shown``: whether it is present. ``texts``: whether it has bytes.
    """

    nodes: NDArray[np.int64]
    fields: NDArray[np.int64]
    numbers: NDArray[np.int64]
    of: NDArray[np.int64]
    weights: NDArray[np.int64]
    defaults: NDArray[np.int64]
    shown: NDArray[np.uint8]
    texts: NDArray[np.bool_]
    content: bytes
    targets: tuple[ProtoTarget, ...]


def program_of(
    schema: ProtoSchema, message: ProtoMessage, columns: Sequence[tuple[str, DataType]]
) -> ProtoProgram:
    """Resolve a message's fields against columns, given by names and types."""
    made = _MessageCompiler(schema)
    _, targets = made.message(message, columns, made.domain())
    return made.program(targets)


@dataclass(slots=True)
class _Slot:
    """A slot of Protobuf values: domain; value, size, presence and form in a new row."""

    domain: int
    value: int = 0
    size: int = 0
    shown: bool = False
    text: bool = False


@dataclass(slots=True)
class _MessageCompiler:
    schema: ProtoSchema
    nodes: list[list[int]] = field(default_factory=list)
    fields: list[list[int]] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    slots: list[_Slot] = field(default_factory=list)
    domains: int = 0
    content: bytes = b""

    def program(self, targets: Sequence[ProtoTarget]) -> ProtoProgram:
        of = np.array([slot.domain for slot in self.slots], np.int64)
        return ProtoProgram(
            np.array(self.nodes, np.int64),
            np.array(self.fields, np.int64).reshape(-1, kernel.FIELD_WIDTH),
            np.array(self.numbers, np.int64),
            of,
            np.bincount(of, minlength=self.domains).astype(np.int64),
            np.array([(one.value, one.size) for one in self.slots], np.int64).reshape(-1, 2),
            np.array([one.shown for one in self.slots], np.uint8),
            np.array([one.text for one in self.slots], np.bool_),
            self.content,
            tuple(targets),
        )

    def domain(self) -> int:
        """Add a domain (of slots with equally many values) to the program; return its number."""
        self.domains += 1
        return self.domains - 1

    def slot(self, slot: _Slot) -> int:
        """Add a slot for a field's values, and return its number."""
        self.slots.append(slot)
        return len(self.slots) - 1

    def message(
        self, message: ProtoMessage, columns: Sequence[tuple[str, DataType]], domain: int
    ) -> tuple[int, list[ProtoTarget]]:
        """Return the row of a message whose fields are columns, and the columns' targets."""
        places = dict[str, int]()
        for place, (name, _) in enumerate(columns):
            places.setdefault(name, place)
        targets = [ProtoTarget(kind) for _, kind in columns]
        wanted = {one.oneof for one in message.fields if one.name in places} - {""}
        groups = {name: number for number, name in enumerate(sorted(wanted))}
        read = sorted(
            (one for one in message.fields if one.name in places or one.oneof in groups),
            key=lambda one: one.number,
        )
        first = len(self.fields)
        self.nodes.append([first, len(read), len(groups), int(message.entry), 0])
        node = len(self.nodes) - 1
        self.fields += [[]] * len(read)
        for number, one in enumerate(read):
            row = self.row(one, kernel.SKIPPED, groups.get(one.oneof, -1))
            if one.name in places:
                place = places[one.name]
                targets[place] = self.field(row, one, columns[place][1], domain)
            self.fields[first + number] = row
        merges = any(row[kernel.MERGES] > 0 for row in self.fields[first : first + len(read)])
        self.nodes[node][kernel.SURVEYED] = int(merges or bool(groups) or message.entry)
        return node, targets

    def row(self, one: ProtoField, kind: int, group: int) -> list[int]:
        """Return the kernel's row for a Protobuf field, without a slot."""
        row = [-1] * kernel.FIELD_WIDTH
        row[kernel.NUMBER], row[kernel.KIND], row[kernel.ONEOF] = one.number, kind, group
        row[kernel.WIRE], row[kernel.CHECKED] = (_KINDS[one.kind][1], int(one.checked))
        if one.repeated:
            row[kernel.LIST] = 0
        found = self.schema.enums.get(one.type)
        if one.kind == "enum" and found is not None and found.closed:
            known = sorted({number for _, number in found.values})
            row[kernel.KNOWN], row[kernel.KNOWN_COUNT] = len(self.numbers), len(known)
            self.numbers += known
        return row

    def field(self, row: list[int], one: ProtoField, kind: DataType, domain: int) -> ProtoTarget:
        """Complete the row of a field, and return the target of its values."""
        row[kernel.KIND] = kernel.WRONG
        row[kernel.DOMAIN] = row[kernel.PARENT] = domain
        if not one.repeated:
            return self.value(row, one, kind, domain, element=False)
        is_map = self.schema.entry(one) is not None
        if kind.kind is not (TypeKind.MAP if is_map else TypeKind.ARRAY):
            return ProtoTarget(kind)
        target = ProtoTarget(kind, "map" if is_map else "array", self.slot(_Slot(domain)))
        row[kernel.LIST] = target.slot
        row[kernel.DOMAIN] = inner = self.domain()
        if is_map:
            columns = [("key", kind.fields[0][1]), ("value", kind.fields[1][1])]
            row[kernel.NODE], target.parts = self.message(
                self.schema.messages[one.type], columns, inner
            )
            row[kernel.KIND] = kernel.MESSAGE
        else:
            target.parts = [self.value(row, one, kind.element, inner, element=True)]
        return target

    def value(
        self, row: list[int], one: ProtoField, kind: DataType, domain: int, *, element: bool,
    ) -> ProtoTarget:  # fmt: skip
        """Complete the row of a field's values; ``element``: whether they are elements."""
        if one.kind in ("message", "group"):
            return self._message(row, one, kind, domain, element=element)
        if kind.kind not in _FITTING[one.kind]:
            return ProtoTarget(kind)
        row[kernel.KIND] = _KINDS[one.kind][0]
        slot = _Slot(domain, text=one.kind in ("string", "bytes"))
        self._default(slot, one)
        row[kernel.SLOT] = self.slot(slot)
        found = self.schema.enums.get(one.type)
        return ProtoTarget(kind, _form(one, kind), row[kernel.SLOT], found)

    def _message(
        self, row: list[int], one: ProtoField, kind: DataType, domain: int, *, element: bool,
    ) -> ProtoTarget:  # fmt: skip
        form, columns = "struct", kind.fields
        if one.type == TIMESTAMP and kind.kind is TypeKind.TIMESTAMP:
            form, columns = "timestamp", _TIME
        elif one.type == DURATION and kind == _INTERVAL:
            form, columns = "duration", _TIME
        elif kind.kind in _FITTING.get(WRAPPERS.get(one.type, ""), ()):
            form, columns = "wrapper", (("value", kind),)
        elif kind.kind is not TypeKind.STRUCT:
            return ProtoTarget(kind)
        slot = -1 if element else self.slot(_Slot(domain, shown=not one.presence))
        row[kernel.KIND], row[kernel.SLOT] = _KINDS[one.kind][0], slot
        row[kernel.NODE], parts = self.message(self.schema.messages[one.type], columns, domain)
        row[kernel.MERGES] = int(not element and self.nodes[row[kernel.NODE]][kernel.SURVEYED])
        return ProtoTarget(kind, form, slot, parts=parts)

    def _default(self, slot: _Slot, one: ProtoField) -> None:
        """Set the slot's value for messages in which the field is absent."""
        value: Any = default_of(one, self.schema.enums.get(one.type))
        if value is None:
            return
        slot.shown = True
        if slot.text:
            content = value if isinstance(value, bytes) else value.encode()
            slot.value, slot.size = len(self.content), len(content)
            self.content += content
        elif one.kind in ("float", "double"):
            number = np.float32(value) if one.kind == "float" else value
            slot.value = struct.unpack("<q", struct.pack("<d", number))[0]
        else:
            slot.value = int(np.uint64(int(value) & (1 << 64) - 1).astype(np.int64))


def _form(one: ProtoField, kind: DataType) -> str:
    """Return how the values of a Protobuf field are converted for the column (``form``)."""
    if one.kind == "enum":
        return "enum" if kind.kind is TypeKind.STRING else "integer"
    if one.kind in INTEGERS:
        return "unsigned" if one.kind in ("uint64", "fixed64") else "integer"
    if one.kind in ("float", "double"):
        return "real"
    if one.kind == "bool":
        return "boolean"
    return "text" if kind.kind in TEXTUAL else "bytes"
