"""Oracle of Avro's binary encoding: decodes value by value, following the specification."""

from __future__ import annotations

import struct
from typing import Any

from anabranch_contract.connectors.schemas.avro import AvroSchema, AvroType


class Malformed(Exception):
    """The bytes do not encode a value."""


def read_message(schema: AvroSchema, data: bytes) -> dict[str, Any]:
    """Decode a message: logical types as their encoding, texts as bytes, maps as pairs.

    Raises:
        Malformed: the bytes are not exactly one message.
    """
    reader = _ValueReader(schema, data)
    found = reader.read(schema.root)
    if reader.at != len(data):
        raise Malformed("bytes are left over")
    return dict(found)


class _ValueReader:
    def __init__(self, schema: AvroSchema, data: bytes) -> None:
        self.schema, self.data, self.at = schema, data, 0

    def take(self, count: int) -> bytes:
        if count < 0 or count > len(self.data) - self.at:
            raise Malformed("too short")
        self.at += count
        return self.data[self.at - count : self.at]

    def long(self) -> int:
        number = shift = 0
        while True:
            byte = self.take(1)[0]
            number |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                break
            if shift > 63:
                raise Malformed("too long")
        if number >= 1 << 64:
            raise Malformed("too large")
        return (number >> 1) ^ -(number & 1)

    def read(self, type: AvroType) -> Any:
        type = self.schema.resolved(type)
        kind = type.kind
        if kind == "null":
            return None
        if kind == "boolean":
            byte = self.take(1)[0]
            if byte > 1:
                raise Malformed("no boolean")
            return byte == 1
        if kind in ("int", "long"):
            number = self.long()
            if kind == "int" and not -(1 << 31) <= number < 1 << 31:
                raise Malformed("no int")
            return number
        if kind in ("float", "double"):
            return struct.unpack(
                "<f" if kind == "float" else "<d", self.take(4 if kind == "float" else 8)
            )[0]
        if kind == "fixed":
            return self.take(type.size)
        if kind in ("bytes", "string"):
            return self.take(self.long())
        if kind == "enum":
            return self.choice(type.symbols)
        if kind == "union":
            return self.read(self.choice(type.parts))
        if kind == "record":
            return {field.name: self.read(field.type) for field in type.fields}
        found = list[Any]()
        while count := self.long():
            if count < 0:
                count = -count
                self.long()
            if count > len(self.data) + 1024 - len(found):
                raise Malformed("too many")
            for _ in range(count):
                key = self.read(AvroType("string")) if kind == "map" else None
                value = self.read(type.parts[0])
                found.append((key, value) if kind == "map" else value)
        return found

    def choice(self, among: Any) -> Any:
        number = self.long()
        if not 0 <= number < len(among):
            raise Malformed("no such choice")
        return among[number]
