"""Protobuf messages of a sample: plain, or with the id of their schema in a registry.

This reader decodes one message at a time; the runtime compiles schemas instead
(``runtime/anabranch_runtime/sources/protobuf``), and a test compares both.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pyarrow as pa

from anabranch_contract.connectors.schemas.declared import (
    ProtoField,
    ProtoMessage,
    ProtoSchema,
    default_of,
)
from anabranch_contract.connectors.schemas.protobuf import (
    DURATION,
    TIMESTAMP,
    WRAPPERS,
    indexes_of,
    message_of,
    parse_schema,
    registered_schema,
)
from anabranch_contract.errors import PlannerError
from anabranch_contract.queries.types import (
    FIELD,
    DataType,
    TypeKind,
    array_of,
    map_of,
    parse_type,
    struct_of,
    whole_interval,
)
from anabranch_service.streaming.samples.arrow_types import arrow_type
from anabranch_service.streaming.samples.registry import PREFIX, ask_registry, id_of
from anabranch_service.streaming.samples.sample import Declared, Row, decoded

#: Maximum depth of nested messages and groups.
_DEEP = 100
_INT, _BIGINT = DataType(TypeKind.INT), DataType(TypeKind.BIGINT)
_TYPES: Mapping[str, DataType] = {
    "double": DataType(TypeKind.DOUBLE), "float": DataType(TypeKind.FLOAT),
    **dict.fromkeys(("int32", "sint32", "sfixed32"), _INT),
    **dict.fromkeys(
        ("int64", "sint64", "sfixed64", "uint32", "uint64", "fixed32", "fixed64"), _BIGINT
    ),
    "bool": DataType(TypeKind.BOOLEAN), "string": DataType(TypeKind.STRING),
    "bytes": DataType(TypeKind.BINARY), "enum": DataType(TypeKind.STRING),
}  # fmt: skip
#: Type of a field of fixed size -> its format in ``struct``.
_FORMS = {"double": "<d", "float": "<f", "fixed32": "<I", "sfixed32": "<i", "fixed64": "<Q",
          "sfixed64": "<q"}  # fmt: skip
_MICROS, _NANOS = 1_000_000, 1_000_000_000


@dataclass(slots=True)
class ProtobufMessages:
    """Decoder of the Protobuf messages of a source.

    Attributes:
        options: options of the source, with secrets in place of references to them.
        declared: columns of each type of decoded messages.
    """

    options: Mapping[str, str]
    declared: list[Declared] = field(default_factory=list)
    _schemas: dict[int | None, ProtoSchema | None] = field(default_factory=dict)
    _types: dict[tuple[int | None, str], Declared] = field(default_factory=dict)

    def row(self, value: bytes) -> Row:
        """Return the values of a message as Arrow scalars, or its text if it is malformed.

        Raises:
            Unreadable: the registry does not answer.
        """
        number, data, indexes = None, value, list[int]()
        if "registry" in self.options:
            number = id_of(value)
            end = _index_size(value[PREFIX:])
            if number is None or end is None:
                return f"no id of a schema: {decoded(value)}"
            indexes = indexes_of(value[PREFIX : PREFIX + end])
            data = value[PREFIX + end :]
        schema = self._schema(number)
        name = self.options.get("message")
        if schema is None:
            return f"the registry has no Protobuf schema of id {number}: {decoded(value)}"
        message = schema.at(indexes) if number is not None else message_of(schema, name)
        if message is None or (name is not None and message is not schema.named(name)):
            return f"another message than {name or indexes}: {decoded(value)}"
        columns = self._columns(number, schema, message)
        try:
            found = _MessageValues(schema).read(message, data, 0)
            return {
                name: None if found[name] is None else pa.scalar(found[name], arrow_type(kind))
                for name, kind in columns.items()
                if kind is not None
            }
        except (ValueError, OverflowError, struct.error, pa.ArrowException) as cause:
            return f"no such message ({cause}): {decoded(value)}"

    def _schema(self, number: int | None) -> ProtoSchema | None:
        if number not in self._schemas:
            if number is None:
                self._schemas[number] = parse_schema(self.options["schema"])
            else:
                get = partial(ask_registry, self.options)
                answer = get(f"schemas/ids/{number}")
                found = None if answer is None else registered_schema(answer, get)
                self._schemas[number] = found
        return self._schemas[number]

    def _columns(self, number: int | None, schema: ProtoSchema, message: ProtoMessage) -> Declared:
        key = number, message.name
        if key not in self._types:
            self._types[key] = {one.name: _column(schema, one) for one in message.fields}
            self.declared.append(self._types[key])
        return self._types[key]


def _index_size(data: bytes) -> int | None:
    """Return the number of bytes of the indexes of a message's type; None: there are no indexes."""
    left = None
    for at, byte in enumerate(data[: 10 * _DEEP]):
        if left is None:
            if byte % 2 or byte > _DEEP:
                return None
            left = byte // 2
        elif byte < 128:
            left -= 1
        if left == 0:
            return at + 1
    return None


def _column(schema: ProtoSchema, one: ProtoField) -> DataType | None:
    """Return the column type for a field's values; None: no column can hold them."""
    try:
        if one.type == DURATION and not one.repeated:
            return whole_interval(TypeKind.INTERVAL)
        found = _of(schema, one, ())
        return None if found is None else parse_type(found)
    except (PlannerError, RecursionError):
        return None


def _of(schema: ProtoSchema, one: ProtoField, around: tuple[str, ...]) -> DataType | None:
    entry = schema.entry(one)
    if entry is not None:
        key, value = (_of(schema, part, around) for part in entry.fields)
        return None if key is None or value is None else map_of(key, value)
    found = _single(schema, one, around)
    return array_of(found) if found is not None and one.repeated else found


def _single(schema: ProtoSchema, one: ProtoField, around: tuple[str, ...]) -> DataType | None:
    """Return the type of a single value; ``around``: names of the messages that contain it."""
    if one.type == TIMESTAMP:
        return DataType(TypeKind.TIMESTAMP)
    if one.kind not in ("message", "group"):
        return _TYPES[one.kind]
    if one.type in WRAPPERS:
        return _TYPES[WRAPPERS[one.type]]
    if one.type in around:
        return None
    inner = (*around, one.type)
    fields = [(f.name, _of(schema, f, inner)) for f in schema.messages[one.type].fields]
    usable = [(n, kind) for n, kind in fields if kind is not None and FIELD.fullmatch(n)]
    return struct_of(usable) if usable else None


@dataclass(slots=True)
class _MessageValues:
    """Reader of Protobuf messages; raises ValueError or ``struct.error`` if one is malformed."""

    schema: ProtoSchema

    def read(self, message: ProtoMessage, data: bytes, depth: int) -> dict[str, Any]:
        """Return the values of a message's fields by name."""
        if depth > _DEEP:
            raise ValueError("nested too deep")
        known = {one.number: one for one in message.fields}
        values, contents = dict[str, Any](), dict[str, list[bytes]]()
        member = dict[str, str]()
        for number, wire, value in _fields(data, depth):
            one = known.get(number)
            if one is None or not _is_of(one, wire):
                continue
            found = self._values(one, wire, value, depth)
            if not found:
                continue
            earlier = member.get(one.oneof)
            if one.oneof and earlier != one.name:
                if earlier is not None:
                    values.pop(earlier, None)
                    contents.pop(earlier, None)
                member[one.oneof] = one.name
            if one.repeated:
                values.setdefault(one.name, []).extend(found)
            elif one.kind in ("message", "group"):
                contents.setdefault(one.name, []).append(bytes(value))
            else:
                values[one.name] = found[-1]
        for name, parts in contents.items():
            values[name] = b"".join(parts)
        return {one.name: self._field(one, values.get(one.name), depth) for one in message.fields}

    def _values(self, one: ProtoField, wire: int, value: Any, depth: int) -> list[Any]:
        """Return the values in a field's occurrence, without unknown ones of a closed enum."""
        if one.kind in ("message", "group"):
            inner = self.schema.messages[one.type]
            self.read(inner, value, depth + 1)
            odd = inner.entry and any(
                (part := {f.number: f for f in inner.fields}.get(number)) is None
                or not _is_of(part, kind)
                or not self._values(part, kind, each, depth + 1)
                for number, kind, each in _fields(value, depth + 1)
            )
            return [] if odd else [value]
        if wire == 2 and one.kind not in ("string", "bytes"):
            return [each for part in _unpacked(one, value) for each in self._scalar(one, part)]
        return self._scalar(one, value)

    def _scalar(self, one: ProtoField, value: Any) -> list[Any]:
        kind = one.kind
        if kind in _FORMS:
            return list(struct.unpack(_FORMS[kind], value))
        if kind == "string":
            return [value.decode()]
        if kind in ("bytes", "uint64"):
            return [value]
        if kind == "bool":
            return [value != 0]
        if kind == "sint64":
            return [value >> 1 ^ -(value & 1)]
        if kind == "int64":
            return [value - (1 << 64) if value >> 63 else value]
        value &= (1 << 32) - 1
        if kind == "uint32":
            return [value]
        if kind == "sint32":
            return [value >> 1 ^ -(value & 1)]
        value = value - (1 << 32) if value >> 31 else value
        enum = self.schema.enums.get(one.type)
        if kind == "enum" and enum is not None and enum.closed and enum.name_of(value) is None:
            return []
        return [value]

    def _field(self, one: ProtoField, value: Any, depth: int) -> Any:
        """Convert a field's value to one of its column; ``value``: None if the field is absent."""
        entry = self.schema.entry(one)
        if entry is not None:
            pairs = [self.read(entry, part, depth + 1) for part in value or ()]
            found = {
                pair["key"]: (pair["value"], part)
                for pair, part in zip(pairs, value or (), strict=True)
            }
            return [(key, each) for key, (each, _) in found.items()]
        if one.repeated:
            return [self._one(one, each, depth) for each in value or ()]
        if value is None:
            value = default_of(one, self.schema.enums.get(one.type))
        return None if value is None else self._one(one, value, depth)

    def _one(self, one: ProtoField, value: Any, depth: int) -> Any:
        if one.kind == "enum":
            return self.schema.enums[one.type].name_of(value) or str(value)
        if one.kind not in ("message", "group"):
            return value
        found = self.read(self.schema.messages[one.type], value, depth + 1)
        if one.type in WRAPPERS:
            return found["value"]
        if one.type not in (TIMESTAMP, DURATION):
            return found
        seconds, nanos = found["seconds"], found["nanos"]
        if one.type == DURATION:
            good = abs(seconds) <= 315_576_000_000 and seconds * nanos >= 0 and abs(nanos) < _NANOS
        else:
            good = -62_135_596_800 <= seconds <= 253_402_300_799 and 0 <= nanos < _NANOS
        if not good:
            raise ValueError(f"there is no time of {seconds} s and {nanos} ns")
        cut = abs(nanos) // 1000
        return seconds * _MICROS + (cut if nanos >= 0 else -cut)


def _is_of(one: ProtoField, wire: int) -> bool:
    """Whether values of this wire type can be values of the field, single or packed."""
    wanted = {"string": 2, "bytes": 2, "message": 2, "group": 3}.get(one.kind)
    if wanted is None:
        wanted = 0 if one.kind not in _FORMS else 5 if _FORMS[one.kind][1] in "fIi" else 1
    if one.repeated and wire == 2 and wanted == 3:
        raise ValueError("a group has a size")
    return wire == wanted or (one.repeated and wire == 2 and wanted != 3)


def _unpacked(one: ProtoField, data: bytes) -> Iterator[Any]:
    size = struct.calcsize(_FORMS[one.kind]) if one.kind in _FORMS else 0
    at = 0
    while at < len(data):
        if size:
            yield data[at : at + size]
            at += size
        else:
            value, at = _varint(data, at, 10)
            yield value


def _fields(data: bytes, depth: int) -> Iterator[tuple[int, int, Any]]:
    """Yield number, wire type and value of each field; the value of a group is its content."""
    at = 0
    while at < len(data):
        number, wire, value, at = _next_field(data, at, depth)
        if wire == 4:
            raise ValueError("a group ends that did not begin")
        yield number, wire, value


def _next_field(data: bytes, at: int, depth: int) -> tuple[int, int, Any, int]:
    tag, at = _varint(data, at, 5)
    number, wire = tag >> 3, tag & 7
    if number == 0 or tag >> 32:
        raise ValueError("a field has no number")
    if wire == 0:
        return number, wire, *_varint(data, at, 10)
    if wire == 3:
        if depth >= _DEEP:
            raise ValueError("nested too deep")
        begin = at
        while True:
            last = at
            inner, kind, _, at = _next_field(data, at, depth + 1)
            if kind == 4:
                if inner != number:
                    raise ValueError("another group ends")
                return number, wire, data[begin:last], at
    if wire == 4:
        return number, wire, b"", at
    size, at = _varint(data, at, 5) if wire == 2 else ({1: 8, 5: 4}.get(wire, -1), at)
    if not 0 <= size <= len(data) - at:
        raise ValueError("it ends too early")
    return number, wire, data[at : at + size], at + size


def _varint(data: bytes, at: int, most: int) -> tuple[int, int]:
    value = 0
    for turn in range(most):
        if at >= len(data):
            break
        value |= (data[at] & 127) << 7 * turn
        at += 1
        if data[at - 1] < 128:
            return value & (1 << 64) - 1, at
    raise ValueError("a number has no end")
