"""Avro messages of a sample: plain, or with the id of their schema in a registry.

This reader decodes one message at a time; the runtime compiles schemas instead
(``runtime/anabranch_runtime/sources/avro``), and a test compares both.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal, localcontext
from functools import partial
from typing import Any
from uuid import UUID

import pyarrow as pa

from anabranch_contract.connectors.schemas.avro import (
    AvroSchema,
    AvroType,
    record_schema,
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
)
from anabranch_service.streaming.samples.arrow_types import arrow_type
from anabranch_service.streaming.samples.registry import PREFIX, ask_registry, id_of
from anabranch_service.streaming.samples.sample import Declared, Row, decoded

#: Maximum depth of a column's type.
_DEEP = 16
#: Maximum number of array items that a message may have in addition to one per byte: items may take
#: no bytes.
_EMPTY = 1024
_STRING, _BINARY = DataType(TypeKind.STRING), DataType(TypeKind.BINARY)
_TYPES: Mapping[str, DataType] = {
    "boolean": DataType(TypeKind.BOOLEAN),
    "int": DataType(TypeKind.INT),
    "long": DataType(TypeKind.BIGINT),
    "float": DataType(TypeKind.FLOAT),
    "double": DataType(TypeKind.DOUBLE),
    "bytes": _BINARY,
    "string": _STRING,
    "enum": _STRING,
    "fixed": _BINARY,
}
#: Unit of a logical time -> microseconds, as a ratio.
_UNITS = {"millis": (1000, 1), "micros": (1, 1), "nanos": (1, 1000)}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(slots=True)
class AvroMessages:
    """Decoder of the Avro messages of a source.

    Attributes:
        options: options of the source, with secrets in place of references to them.
        declared: columns of each schema of decoded messages.
    """

    options: Mapping[str, str]
    declared: list[Declared] = field(default_factory=list)
    _known: dict[int | None, tuple[AvroSchema, Declared] | None] = field(default_factory=dict)

    def row(self, value: bytes) -> Row:
        """Return the values of a message as Arrow scalars, or its text if it is malformed.

        Raises:
            Unreadable: the registry does not answer.
        """
        number, begin = None, 0
        if "registry" in self.options:
            number, begin = id_of(value), PREFIX
            if number is None:
                return f"no id of a schema: {decoded(value)}"
        known = self._schema(number)
        if known is None:
            return f"the registry has no Avro record of id {number}: {decoded(value)}"
        schema, columns = known
        reader = _MessageReader(schema, value, begin)
        try:
            found = reader.read(schema.root, 0)
            if reader.at != len(value):
                raise ValueError("bytes are left over")
            return {
                name: None if one is None else pa.scalar(one, arrow_type(kind))
                for name, one in found.items()
                if (kind := columns[name]) is not None
            }
        except (ValueError, IndexError, OverflowError, struct.error, pa.ArrowException) as cause:
            return f"no such record ({cause}): {decoded(value)}"

    def _schema(self, number: int | None) -> tuple[AvroSchema, Declared] | None:
        if number not in self._known:
            if number is None:
                schema: AvroSchema | None = record_schema(self.options["schema"])
            else:
                get = partial(ask_registry, self.options)
                answer = get(f"schemas/ids/{number}")
                schema = None if answer is None else registered_schema(answer, get)
            self._known[number] = None
            if schema is not None:
                columns = {f.name: _column(f.type, schema) for f in schema.root.fields}
                self._known[number] = schema, columns
                self.declared.append(columns)
        return self._known[number]


def _column(type: AvroType, schema: AvroSchema) -> DataType | None:
    """Return the column type for values of an Avro type; None: no column can hold them."""
    try:
        found = _of(type, schema, 0)
        return None if found is None else parse_type(found)
    except (PlannerError, RecursionError):
        return None


def _of(type: AvroType, schema: AvroSchema, depth: int) -> DataType | None:
    type = schema.resolved(type)
    if depth > _DEEP:
        return None
    if type.kind == "union":
        kinds = {_of(part, schema, depth) for part in type.parts if part.kind != "null"}
        if len(kinds) == 1:
            return kinds.pop()
        numbers = {_TYPES["int"], _TYPES["long"]}
        return _TYPES["long"] if kinds == numbers else None
    if type.kind == "record":
        fields = [(f.name, _of(f.type, schema, depth + 1)) for f in type.fields]
        usable = [(n, kind) for n, kind in fields if kind is not None and FIELD.fullmatch(n)]
        return struct_of(usable) if usable else None
    if type.kind in ("array", "map"):
        part = _of(type.parts[0], schema, depth + 1)
        if part is None:
            return None
        return array_of(part) if type.kind == "array" else map_of(_STRING, part)
    return _logical(type) or _TYPES.get(type.kind)


def _logical(type: AvroType) -> DataType | None:
    """Return the column type of a logical type; None: the logical type is ignored."""
    if type.precision and type.precision <= 38:
        return DataType(TypeKind.DECIMAL, type.precision, type.scale)
    if (type.kind, type.logical) == ("int", "date"):
        return DataType(TypeKind.DATE)
    if (type.kind, type.logical, type.size) == ("fixed", "uuid", 16):
        return _STRING
    name, _, unit = type.logical.rpartition("-")
    if type.kind == "long" and unit in _UNITS and name in ("timestamp", "local-timestamp"):
        return DataType(TypeKind.TIMESTAMP if name == "timestamp" else TypeKind.TIMESTAMP_NTZ)
    return None


@dataclass(slots=True)
class _MessageReader:
    """Reader of an Avro message; raises ValueError, IndexError, ``struct.error`` if malformed."""

    schema: AvroSchema
    data: bytes
    at: int
    items: int = 0

    def read(self, type: AvroType, depth: int) -> Any:
        """Read the next value, of ``type``."""
        type = self.schema.resolved(type)
        if depth > 4 * _DEEP:
            raise ValueError("nested too deep")
        if type.kind == "null":
            return None
        if type.kind == "union":
            return self.read(type.parts[self._index(len(type.parts))], depth + 1)
        if type.kind == "record":
            return {one.name: self.read(one.type, depth + 1) for one in type.fields}
        if type.kind in ("array", "map"):
            return self._several(type, depth)
        return _value(type, self._leaf(type))

    def _several(self, type: AvroType, depth: int) -> list[Any]:
        found = list[Any]()
        while count := self._long():
            if count < 0:
                count = -count
                self._long()
            self.items += count
            if self.items > len(self.data) + _EMPTY:
                raise ValueError("more items than bytes")
            for _ in range(count):
                key = self._bytes(self._long()).decode() if type.kind == "map" else None
                value = self.read(type.parts[0], depth + 1)
                found.append(value if key is None else (key, value))
        return found

    def _leaf(self, type: AvroType) -> Any:
        if type.kind in ("int", "long"):
            return self._long()
        if type.kind == "boolean":
            return bool((b"\0", b"\1").index(self._bytes(1)))
        if type.kind == "enum":
            return type.symbols[self._index(len(type.symbols))]
        if type.kind in ("float", "double"):
            form, size = ("<f", 4) if type.kind == "float" else ("<d", 8)
            return struct.unpack(form, self._bytes(size))[0]
        content = self._bytes(type.size if type.kind == "fixed" else self._long())
        return content.decode() if type.kind == "string" else content

    def _index(self, count: int) -> int:
        found = self._long()
        if not 0 <= found < count:
            raise ValueError(f"there is no branch or symbol {found}")
        return found

    def _bytes(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise ValueError("it ends too early")
        self.at += size
        return self.data[self.at - size : self.at]

    def _long(self) -> int:
        value = shift = 0
        while True:
            byte = self.data[self.at]
            self.at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift > 63:
                raise ValueError("a number is too long")
        if value >= 1 << 64:
            raise ValueError("a number is too large")
        return value >> 1 if value % 2 == 0 else -(value >> 1) - 1


def _value(type: AvroType, given: Any) -> Any:
    """Convert a sampled Avro value to a value of its column."""
    kind = _logical(type)
    if kind is None:
        return given
    if kind.kind is TypeKind.DECIMAL:
        if not given:
            raise ValueError("a decimal has no bytes")
        with localcontext(prec=100):
            return Decimal(int.from_bytes(given, signed=True)).scaleb(-type.scale)
    if kind.kind is TypeKind.DATE:
        return given
    if kind == _STRING:
        return str(UUID(bytes=given))
    more, less = _UNITS[type.logical.rpartition("-")[2]]
    moment = _EPOCH + timedelta(microseconds=given * more // less)
    return moment if kind.kind is TypeKind.TIMESTAMP else moment.replace(tzinfo=None)
