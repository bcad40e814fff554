"""Reader of descriptor sets: compiled ``.proto`` files, which are Protobuf messages themselves."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch_contract.connectors.schemas.declared import (
    MOST_DEEP,
    ProtoEnum,
    ProtoField,
    ProtoFile,
    ProtoMessage,
    bad_schema,
    unescaped,
)

#: Number of a field's type in a Protobuf descriptor -> its name in ``ProtoField.kind``.
_KINDS = dict(enumerate((
    "double", "float", "int64", "uint64", "int32", "fixed64", "fixed32", "bool", "string", "group",
    "message", "bytes", "uint32", "enum", "sfixed32", "sfixed64", "sint32", "sint64",
), 1))  # fmt: skip
_REPEATED = 3
#: Number of a field in an encoded descriptor -> its values: bytes or numbers.
Parts = dict[int, list[bytes | int]]


def parse_descriptors(data: bytes) -> dict[str, ProtoFile]:
    """Return the Protobuf files of a descriptor set by their names, in its order.

    Raises:
        StreamError: the bytes are no descriptor set, or a file is in a syntax that is not read.
    """
    files = dict[str, ProtoFile]()
    try:
        for number, value in fields_of(data):
            if number == 1 and isinstance(value, bytes):
                parts = _parts(value)
                files[_text(parts, 1)] = _file(parts)
    except (ValueError, KeyError, TypeError, IndexError):
        raise bad_schema("it is no descriptor set") from None
    if not files:
        raise bad_schema("the descriptor set has no files")
    return files


def fields_of(data: bytes) -> Iterator[tuple[int, bytes | int]]:
    """Yield the number and value of each field of an encoded Protobuf message without groups.

    Raises:
        ValueError: the bytes are no message, or have groups.
    """
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        wire = tag & 7
        value: bytes | int
        if wire == 0:
            value, at = _varint(data, at)
        else:
            if wire not in (1, 2, 5):
                raise ValueError(f"wire type {wire}")
            size, at = _varint(data, at) if wire == 2 else (8 if wire == 1 else 4, at)
            if size > len(data) - at:
                raise ValueError("it ends too early")
            value = data[at : at + size]
            at += size
        yield tag >> 3, value


def _varint(data: bytes, at: int) -> tuple[int, int]:
    """Return the Protobuf varint that begins at ``at``, and the position after it."""
    value = 0
    for turn in range(10):
        if at >= len(data):
            break
        value |= (data[at] & 127) << 7 * turn
        at += 1
        if data[at - 1] < 128:
            return value & (1 << 64) - 1, at
    raise ValueError("a number has no end")


def _parts(value: bytes | int) -> Parts:
    """Decode a nested Protobuf message of a descriptor to the values of its fields."""
    if isinstance(value, int):
        raise TypeError("a number in place of a message")
    found: Parts = {}
    for number, one in fields_of(value):
        found.setdefault(number, []).append(one)
    return found


def _text(parts: Parts, number: int) -> str:
    """Return the last text in the descriptor's field ``number``; empty if the field is absent."""
    value = parts.get(number, [b""])[-1]
    if isinstance(value, int):
        raise TypeError("a number in place of a text")
    return value.decode()


def _number(parts: Parts, number: int) -> int:
    """Return the last value of the descriptor's field ``number`` as a signed number, or 0."""
    value = parts.get(number, [0])[-1]
    if isinstance(value, bytes):
        raise TypeError("bytes in place of a number")
    return value - (1 << 64) if value >> 63 else value


def _file(parts: Parts) -> ProtoFile:
    syntax = _text(parts, 12) or "proto2"
    if syntax not in ("proto2", "proto3"):
        raise bad_schema(f"{syntax} are not read, only proto2 and proto3")
    file = ProtoFile(_text(parts, 2))
    file.imports = [one.decode() for one in parts.get(3, []) if isinstance(one, bytes)]
    newer = syntax == "proto3"
    for one in parts.get(4, []):
        file.roots.append(_message(_parts(one), file, file.package, newer, 0))
    for one in parts.get(5, []):
        _enum(_parts(one), file, file.package, newer)
    return file


def _message(parts: Parts, file: ProtoFile, scope: str, newer: bool, depth: int) -> str:
    """Declare in ``file`` a message of a descriptor, and nested messages; return its full name."""
    if depth > MOST_DEEP:
        raise bad_schema("messages are nested too deep")
    name = f"{scope}.{_text(parts, 1)}".removeprefix(".")
    file.declare(ProtoMessage(name))
    inner = [_message(_parts(one), file, name, newer, depth + 1) for one in parts.get(3, [])]
    for one in parts.get(4, []):
        _enum(_parts(one), file, name, newer)
    oneofs = [_text(_parts(one), 1) for one in parts.get(8, [])]
    entry = bool(_number(_parts(parts.get(7, [b""])[-1]), 7))
    fields = tuple(_field(_parts(one), oneofs, newer, entry) for one in parts.get(2, []))
    shown = tuple(one for one in inner if not file.messages[one].entry)
    file.messages[name] = ProtoMessage(name, fields, shown, entry)
    return name


def _field(parts: Parts, oneofs: list[str], newer: bool, entry: bool) -> ProtoField:
    kind, named = _KINDS[_number(parts, 5)], _text(parts, 6)
    repeated, optional = _number(parts, 4) == _REPEATED, bool(_number(parts, 17))
    oneof = oneofs[_number(parts, 9)] if 9 in parts and not optional else ""
    default = None
    if 7 in parts:
        # Descriptors escape the defaults of bytes fields, but not of string fields.
        text = _text(parts, 7)
        default = text.encode().decode("latin-1") if kind == "string" else text
        if kind == "bytes":
            default = unescaped(text)
    return ProtoField(
        _text(parts, 1), _number(parts, 3), "" if named and kind == "enum" else kind,
        named, repeated,
        presence=not (repeated or entry) and (not newer or optional or bool(oneof)),
        default=default, oneof=oneof, checked=newer and kind == "string",
    )  # fmt: skip


def _enum(parts: Parts, file: ProtoFile, scope: str, newer: bool) -> None:
    name = f"{scope}.{_text(parts, 1)}".removeprefix(".")
    values = [_parts(one) for one in parts.get(2, [])]
    known = tuple((_text(one, 1), _number(one, 2)) for one in values)
    file.declare(ProtoEnum(name, known, closed=not newer))
