"""Declarations of Protobuf files: messages and enums by their full names, linked across files.

A file is read from its text (``proto_text``) or from a descriptor (``descriptors``); names of types
are resolved here.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from anabranch_contract.errors import StreamError

#: Maximum depth of nested declarations, number of types, and number of fields of a Protobuf schema.
MOST_DEEP, MOST_TYPES, MOST_FIELDS = 32, 5000, 50_000
#: Number of bits of a Protobuf field's number.
_BITS = 29
SCALARS = (
    *("double", "float", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32"),
    *("fixed64", "sfixed32", "sfixed64", "bool", "string", "bytes"),
)
INTEGERS = frozenset(SCALARS[2:12])
_ESCAPE = re.compile(
    r"\\(?:[xX]([0-9a-fA-F]{1,2})|([0-7]{1,3})|u([0-9a-fA-F]{4})|U([0-9a-fA-F]{8})|(.))", re.DOTALL
)
_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v"}


@dataclass(frozen=True, slots=True)
class ProtoField:
    """A field of a Protobuf message.

    Attributes:
        kind: a scalar type, or ``message``, ``group``, ``enum``; empty: a type to be resolved.
        type: full name of a named type.
        presence: whether messages distinguish an absent field from a field with the default value.
        default: text of the declared default value; bytes and texts without escapes, one character
            per byte. None: no default is declared.
        oneof: name of its ``oneof``; empty: none.
        checked: whether a text that is not UTF-8 makes its message malformed.
    """

    name: str
    number: int
    kind: str
    type: str = ""
    repeated: bool = False
    presence: bool = True
    default: str | None = None
    oneof: str = ""
    checked: bool = False


@dataclass(frozen=True, slots=True)
class ProtoMessage:
    """A type of Protobuf messages. ``inner``: full names of the messages declared in it, in order,
    without the messages for entries of maps, whose ``entry`` is true."""

    name: str
    fields: tuple[ProtoField, ...] = ()
    inner: tuple[str, ...] = ()
    entry: bool = False


@dataclass(frozen=True, slots=True)
class ProtoEnum:
    """A Protobuf enum. ``values``: (name, number); ``closed``: other numbers are invalid."""

    name: str
    values: tuple[tuple[str, int], ...]
    closed: bool

    def name_of(self, number: int) -> str | None:
        """Return the first name that the Protobuf enum has for ``number``."""
        return next((name for name, known in self.values if known == number), None)


@dataclass(slots=True)
class ProtoFile:
    """Declarations of a ``.proto`` file; ``roots``: full names of outermost messages, in order."""

    package: str = ""
    imports: list[str] = field(default_factory=list)
    roots: list[str] = field(default_factory=list)
    messages: dict[str, ProtoMessage] = field(default_factory=dict)
    enums: dict[str, ProtoEnum] = field(default_factory=dict)

    def declare(self, one: ProtoMessage | ProtoEnum) -> None:
        """Add a message or enum to the declarations of the Protobuf file.

        Raises:
            StreamError: its name is taken, or there are too many types.
        """
        if one.name in self.messages or one.name in self.enums:
            raise bad_schema(f"the type {one.name[:60]!r} is defined twice")
        if len(self.messages) + len(self.enums) >= MOST_TYPES:
            raise bad_schema(f"it has more than {MOST_TYPES} types")
        if isinstance(one, ProtoEnum):
            self.enums[one.name] = one
        else:
            self.messages[one.name] = one


@dataclass(frozen=True, slots=True)
class ProtoSchema:
    """A Protobuf schema: outermost messages of its main file, and all types by their full names."""

    roots: tuple[str, ...]
    messages: Mapping[str, ProtoMessage]
    enums: Mapping[str, ProtoEnum]

    def at(self, indexes: Iterable[int]) -> ProtoMessage | None:
        """Return the message at a path of indexes, from the outermost message inwards, or None."""
        names, found = self.roots, None
        for index in indexes:
            if not 0 <= index < len(names):
                return None
            found = self.messages[names[index]]
            names = found.inner
        return found

    def named(self, name: str) -> ProtoMessage | None:
        """Return the message with this full name, or the outermost message with this short name."""
        if name in self.messages:
            return self.messages[name]
        found = [one for one in self.roots if one.rpartition(".")[2] == name]
        return self.messages[found[0]] if len(found) == 1 else None

    def entry(self, one: ProtoField) -> ProtoMessage | None:
        """Return the message type for entries of a map field; None if the field is not a map."""
        found = self.messages[one.type] if one.kind == "message" and one.repeated else None
        return found if found is not None and found.entry else None


def linked(files: Iterable[ProtoFile], main: ProtoFile) -> ProtoSchema:
    """Resolve the types of all Protobuf fields; return the schema whose main file is ``main``.

    Args:
        files: all files that ``main`` needs, and ``main`` itself.

    Raises:
        StreamError: a name is undefined or defined twice, or a message has a number or name twice.
    """
    all_types = ProtoFile()
    for file in files:
        for message in file.messages.values():
            all_types.declare(message)
        for enum in file.enums.values():
            all_types.declare(enum)
    messages = {
        message.name: replace(message, fields=_fields(message, all_types))
        for message in all_types.messages.values()
    }
    if sum(len(message.fields) for message in messages.values()) > MOST_FIELDS:
        raise bad_schema(f"it has more than {MOST_FIELDS} fields")
    return ProtoSchema(tuple(main.roots), messages, all_types.enums)


def _fields(message: ProtoMessage, types: ProtoFile) -> tuple[ProtoField, ...]:
    for what in ("number", "name"):
        if len({getattr(one, what) for one in message.fields}) < len(message.fields):
            raise bad_schema(f"the message {message.name[:60]!r} has a {what} twice")
    return tuple(_resolved(one, message, types) for one in message.fields)


def _resolved(one: ProtoField, message: ProtoMessage, types: ProtoFile) -> ProtoField:
    if not 0 < one.number < 1 << _BITS:
        raise bad_schema(f"{one.number} is not the number of a field")
    if not one.type:
        return one
    name, given, scope = "", one.type, message.name
    if given.startswith("."):
        name = given[1:]
    else:
        while True:
            name = f"{scope}.{given}" if scope else given
            if name in types.messages or name in types.enums or not scope:
                break
            scope = scope.rpartition(".")[0]
    if name in types.enums:
        return replace(one, kind="enum", type=name)
    if name not in types.messages:
        raise bad_schema(f"the type {given[:60]!r} is not defined")
    kind = one.kind or "message"
    return replace(one, kind=kind, type=name, presence=not (one.repeated or message.entry))


def default_of(one: ProtoField, enum: ProtoEnum | None) -> bool | int | float | str | bytes | None:
    """Return the value of an absent Protobuf field (an ``enum``'s number); None: NULL."""
    text = None if one.oneof else one.default
    if text is None and one.presence:
        return None
    if enum is not None:
        first = enum.values[0][1] if enum.closed else 0
        return dict(reversed(enum.values)).get(text, first) if text is not None else first
    if one.kind in ("message", "group"):
        return b""
    if one.kind in ("string", "bytes"):
        content = (text or "").encode("latin-1")
        return content if one.kind == "bytes" else content.decode(errors="replace")
    if one.kind == "bool":
        return text == "true"
    if one.kind in ("float", "double"):
        return float(text or 0)
    sign, digits = (-1, text[1:]) if text and text.startswith("-") else (1, text or "0")
    octal = len(digits) > 1 and digits.startswith("0") and digits.isdigit()
    return sign * int(digits, 8 if octal else 0)


def unescaped(text: str) -> str:
    """Return the bytes that an escaped literal of a ``.proto`` file means, a character per byte.

    >>> unescaped(r"a\\n\\x41\\101\\u00e4")
    'a\\nAAÃ¤'
    """

    def one(match: re.Match[str]) -> str:
        hexadecimal, octal, short, long, letter = match.groups()
        if hexadecimal is not None:
            return chr(int(hexadecimal, 16))
        if octal is not None:
            return chr(int(octal, 8) & 255)
        if short is not None or long is not None:
            return _bytes_of(chr(min(int(short or long, 16), 0x10FFFF)))
        return _LETTERS.get(letter, letter)

    parts = list[str]()
    at = 0
    for match in _ESCAPE.finditer(text):
        parts += [_bytes_of(text[at : match.start()]), one(match)]
        at = match.end()
    return "".join([*parts, _bytes_of(text[at:])])


def _bytes_of(text: str) -> str:
    return text.encode(errors="replace").decode("latin-1")


def bad_schema(why: str) -> StreamError:
    """Return the error of a Protobuf schema that can't be read."""
    return StreamError(
        "bad-schema",
        f"the Protobuf schema can't be read: {why}",
        field="source.options.schema",
        remedy="give the text of a .proto file, or in base64 a descriptor set with all its imports",
    )
