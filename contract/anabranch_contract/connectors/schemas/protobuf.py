"""Protobuf schemas of sources, parsed from a ``.proto`` file, a descriptor set or a registry's
answer.

>>> schema = parse_schema('syntax = "proto3"; message A { int32 x = 1; } message B {}')
>>> schema.roots, schema.named("B").name
(('A', 'B'), 'B')
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from typing import Any

from anabranch_contract.connectors.schemas.declared import (
    ProtoFile,
    ProtoMessage,
    ProtoSchema,
    bad_schema,
    linked,
)
from anabranch_contract.connectors.schemas.descriptors import parse_descriptors
from anabranch_contract.connectors.schemas.proto_text import parse_proto
from anabranch_contract.connectors.schemas.registered import Get, referred
from anabranch_contract.errors import StreamError

_BASE64 = re.compile(r"[A-Za-z0-9+/\s]++=*+\s*+")
#: Wrapper message of Protobuf -> type of its value.
WRAPPERS = {
    f"google.protobuf.{name}Value": kind
    for name, kind in {
        "Double": "double", "Float": "float", "Int64": "int64", "UInt64": "uint64",
        "Int32": "int32", "UInt32": "uint32", "Bool": "bool", "String": "string", "Bytes": "bytes",
    }.items()
}  # fmt: skip
TIMESTAMP, DURATION = "google.protobuf.Timestamp", "google.protobuf.Duration"
#: Standard Protobuf files, which registrations need not contain -> what they declare.
_PROVIDED = {
    "timestamp": "message Timestamp { int64 seconds = 1; int32 nanos = 2; }",
    "duration": "message Duration { int64 seconds = 1; int32 nanos = 2; }",
    "wrappers": "".join(
        f"message {name.rpartition('.')[2]} {{ {kind} value = 1; }}"
        for name, kind in WRAPPERS.items()
    ),
    "any": "message Any { string type_url = 1; bytes value = 2; }",
    "empty": "message Empty {}",
    "field_mask": "message FieldMask { repeated string paths = 1; }",
    "struct": """
        message Struct { map<string, Value> fields = 1; }
        message Value { oneof kind {
            NullValue null_value = 1; double number_value = 2; string string_value = 3;
            bool bool_value = 4; Struct struct_value = 5; ListValue list_value = 6;
        } }
        enum NullValue { NULL_VALUE = 0; }
        message ListValue { repeated Value values = 1; }""",
}
#: Imports that declare options only; no field has a type from them.
_OPTIONS_ONLY = re.compile(r"google/(protobuf/descriptor|api/.*)\.proto|confluent/meta\.proto")


def parse_schema(text: str, others: Mapping[str, str] | None = None) -> ProtoSchema:
    """Parse a Protobuf schema: the text of a ``.proto`` file, or a descriptor set in base64, whose
    last file becomes the main file.

    Args:
        text: text of the schema.
        others: name -> text of the files that ``text`` imports.

    Raises:
        StreamError: the text is no such schema, or lacks an import.
    """
    if _BASE64.fullmatch(text):
        try:
            files = parse_descriptors(base64.b64decode("".join(text.split()), validate=True))
        except binascii.Error:
            raise bad_schema("it is neither a .proto file nor base64") from None
        main = [*files.values()][-1]
        return linked(_with_imports(main, files, {}), main)
    main = parse_proto(text)
    return linked(_with_imports(main, {}, others or {}), main)


def _with_imports(
    main: ProtoFile, files: Mapping[str, ProtoFile], texts: Mapping[str, str]
) -> list[ProtoFile]:
    """Return a Protobuf file and all its direct and indirect imports.

    Raises:
        StreamError: an import is missing.
    """
    found, waiting, seen = list[ProtoFile](), [main], set[str]()
    while waiting:
        one = waiting.pop()
        found.append(one)
        for name in one.imports:
            if name in seen:
                continue
            seen.add(name)
            if name in files:
                waiting.append(files[name])
            elif name in texts:
                waiting.append(parse_proto(texts[name]))
            elif (short := _provided(name)) is not None:
                package = 'syntax = "proto3"; package google.protobuf;'
                waiting.append(parse_proto(package + _PROVIDED[short]))
            elif not _OPTIONS_ONLY.fullmatch(name):
                raise bad_schema(f"the import {name[:60]!r} is missing")
    return found


def _provided(name: str) -> str | None:
    short = name.removeprefix("google/protobuf/").removesuffix(".proto")
    return short if short in _PROVIDED and name == f"google/protobuf/{short}.proto" else None


def message_of(schema: ProtoSchema, name: str | None) -> ProtoMessage:
    """Return the Protobuf type of messages that do not state their type themselves.

    Args:
        schema: schema of the messages.
        name: name of the type, with or without its package; None: the only outermost message.

    Raises:
        StreamError: there is no such type, or several.
    """
    if name is not None:
        found = schema.named(name)
        if found is not None:
            return found
    elif len(schema.roots) == 1:
        return schema.messages[schema.roots[0]]
    shown = ", ".join(schema.roots[:10]) or "none"
    raise StreamError(
        "no-message",
        f"the Protobuf schema has no message {name[:60]!r}"
        if name is not None
        else f"the Protobuf schema has {len(schema.roots)} messages",
        field="source.options.message",
        remedy=f"give the option message, one of: {shown}",
    )


def indexes_of(head: bytes) -> list[int]:
    """Decode the indexes of a message's type (:meth:`ProtoSchema.at`) from the bytes before the
    message. Confluent's encoding consists of the number of indexes, then each index, as zigzag
    varints; a single 0 stands for the first type.

    >>> indexes_of(bytes([4, 2, 0])), indexes_of(b"\\0")
    ([1, 0], [0])
    """
    found, value, shift = list[int](), 0, 0
    for byte in head:
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            found.append(value >> 1 if value % 2 == 0 else -(value >> 1) - 1)
            value = shift = 0
    return found[1:] or [0]


def registered_schema(answer: Mapping[str, Any], get: Get) -> ProtoSchema | None:
    """Parse a registry's answer, a Protobuf schema, with the schemas to which it refers.

    Args:
        get: returns the registry's answer for a path.

    Returns:
        The schema; None if the answer is not a Protobuf schema.
    """
    try:
        if answer.get("schemaType") != "PROTOBUF":
            return None
        return parse_schema(str(answer["schema"]), referred(answer, get))
    except (StreamError, KeyError):
        return None
