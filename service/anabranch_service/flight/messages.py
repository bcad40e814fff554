"""Messages of Arrow Flight SQL in the wire format of Protocol Buffers.

A message consists of fields: a key (number of the field, and its wire type), then a varint or a
length with bytes. Only the messages and fields that the server reads or writes are here, with the
numbers of Flight SQL's published definition; other fields are skipped.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

#: Prefix of types in an ``Any``, which holds a message with its type.
_TYPES = "type.googleapis.com/arrow.flight.protocol.sql."
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_SIZES = {_FIXED64: 8, _FIXED32: 4}


class BadMessage(ValueError):
    """Bytes that are not a message."""


@dataclass(frozen=True, slots=True)
class Command:
    """A message and its type, for example ``CommandGetTables``.

    Attributes:
        fields: number -> values, in order: an integer or bytes each.
    """

    kind: str
    fields: Mapping[int, list[int | bytes]]

    @staticmethod
    def read(content: bytes) -> Command:
        """Decode an ``Any`` with a message of Flight SQL.

        Raises:
            BadMessage: the bytes are no such message.
        """
        outer = _fields(content)
        name = _text(outer, 1) or ""
        if not name.startswith(_TYPES):
            raise BadMessage(f"{name[:100]!r} is no message of Flight SQL")
        return Command(name.removeprefix(_TYPES), _fields(_content(outer, 2)))

    def text(self, number: int) -> str | None:
        """Return the text of the field ``number``; None if it is absent."""
        return _text(self.fields, number)

    def texts(self, number: int) -> list[str]:
        """Return the texts of a repeated field."""
        return [_decoded(one) for one in self.fields.get(number, ())]

    def content(self, number: int) -> bytes:
        """Return the bytes of the field ``number``; empty if it is absent."""
        return _content(self.fields, number)

    def flag(self, number: int) -> bool:
        """Return the boolean of the field ``number``; false if it is absent."""
        return bool(self.fields.get(number, [0])[-1])

    def numbers(self, number: int) -> list[int]:
        """Return the integers of a repeated field, packed or not."""
        found: list[int] = []
        for one in self.fields.get(number, ()):
            if isinstance(one, int):
                found.append(one)
                continue
            at = 0
            while at < len(one):
                value, at = _varint(one, at)
                found.append(value)
        return found


def wrapped(kind: str, fields: Mapping[int, bytes]) -> bytes:
    """Encode a message of type ``kind``, whose ``fields`` are bytes, as an ``Any``."""
    return _encoded({1: (_TYPES + kind).encode(), 2: _encoded(fields)})


def _encoded(fields: Mapping[int, bytes]) -> bytes:
    parts = []
    for number, content in fields.items():
        parts += [_number(number << 3 | _BYTES), _number(len(content)), content]
    return b"".join(parts)


def _number(value: int) -> bytes:
    found = bytearray()
    while value > 0x7F:
        found.append(value & 0x7F | 0x80)
        value >>= 7
    found.append(value)
    return bytes(found)


def _fields(content: bytes) -> dict[int, list[int | bytes]]:
    found: dict[int, list[int | bytes]] = {}
    for number, value in _pairs(content):
        found.setdefault(number, []).append(value)
    return found


def _pairs(content: bytes) -> Iterator[tuple[int, int | bytes]]:
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(content, at)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(content, at)
        elif kind in _SIZES:
            size = _SIZES[kind]
        else:
            raise BadMessage(f"a field has the wire type {kind}")
        if at + size > len(content):
            raise BadMessage("a field goes beyond the end")
        yield number, content[at : at + size]
        at += size


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        if at >= len(content) or shift > 63:
            raise BadMessage("a number has no end")
        byte = content[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at


def _content(fields: Mapping[int, list[int | bytes]], number: int) -> bytes:
    values = fields.get(number)
    if not values:
        return b""
    last = values[-1]
    if isinstance(last, int):
        raise BadMessage(f"field {number} is a number instead of bytes")
    return last


def _text(fields: Mapping[int, list[int | bytes]], number: int) -> str | None:
    return _decoded(_content(fields, number)) if number in fields else None


def _decoded(value: int | bytes) -> str:
    if isinstance(value, int):
        raise BadMessage("a text is a number")
    try:
        return value.decode()
    except UnicodeDecodeError:
        raise BadMessage("a text is not UTF-8") from None
