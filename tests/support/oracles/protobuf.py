"""Oracle of Protobuf by Google's library: schemas compiled by ``protoc``, and values of messages as
columns have them.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import grpc_tools
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message
from grpc_tools import protoc

_MICROS, _NANOS = 1_000_000, 1_000_000_000
_TIMES = ("google.protobuf.Timestamp", "google.protobuf.Duration")


class Unfit(Exception):
    """The value does not fit any column type."""


def compiled(text: str, **others: str) -> bytes:
    """Compile a ``.proto`` file with its imports; return the descriptor set.

    Args:
        others: texts of further files, by name without ending.
    """
    with tempfile.TemporaryDirectory() as home:
        folder = Path(home)
        for name, one in {"main": text, **others}.items():
            (folder / f"{name}.proto").write_text(one)
        known = Path(grpc_tools.__file__).parent / "_proto"
        arguments = ["", f"-I{home}", f"-I{known}", "--include_imports"]
        made = folder / "set"
        status = protoc.main([*arguments, f"--descriptor_set_out={made}", "main.proto"])
        if status:
            raise ValueError(f"protoc refuses {text}")
        return made.read_bytes()


def message_class(descriptors: bytes, name: str) -> type[Message]:
    """Return the Python class of a message."""
    pool = descriptor_pool.DescriptorPool()
    for file in descriptor_pb2.FileDescriptorSet.FromString(descriptors).file:
        pool.Add(file)
    found: type[Message] = message_factory.GetMessageClass(pool.FindMessageTypeByName(name))
    return found


def read_message(cls: type[Message], data: bytes) -> dict[str, Any] | None:
    """The values of a message by column; None if it is malformed, or a value fits no column."""
    try:
        return values_of(cls.FromString(data))
    except (DecodeError, Unfit, UnicodeDecodeError):
        return None


def values_of(message: Any) -> dict[str, Any]:
    """Return the values of a message's fields: maps as dicts, times as microseconds, enums as
    texts.

    Raises:
        Unfit, UnicodeDecodeError: a value has no such form.
    """
    return {one.name: _field(message, one) for one in message.DESCRIPTOR.fields}


def _field(message: Any, one: FieldDescriptor) -> Any:
    value = getattr(message, one.name)
    if is_map(one):
        key, inner = (one.message_type.fields_by_name[n] for n in ("key", "value"))
        return {_leaf(k, key): _leaf(value[k], inner) for k in value}
    if one.is_repeated:
        return [_leaf(each, one) for each in value]
    if one.has_presence and not message.HasField(one.name):
        if one.has_default_value and one.containing_oneof is None:
            return _leaf(value, one)
        return None
    return _leaf(value, one)


def is_map(one: FieldDescriptor) -> bool:
    """Whether a field is a map."""
    kind: Descriptor | None = one.message_type
    return one.is_repeated and kind is not None and kind.GetOptions().map_entry


def _leaf(value: Any, one: FieldDescriptor) -> Any:
    if one.type in (FieldDescriptor.TYPE_UINT64, FieldDescriptor.TYPE_FIXED64):
        if value >= 1 << 63:
            raise Unfit
        return value
    if one.enum_type is not None:
        found = one.enum_type.values_by_number.get(value)
        return str(value) if found is None else found.name
    if one.message_type is None:
        if one.type == FieldDescriptor.TYPE_STRING and not isinstance(value, str):
            raise Unfit
        return value
    name = one.message_type.full_name
    if name in _TIMES:
        return _time(value, name)
    if name.startswith("google.protobuf.") and name.endswith("Value"):
        return _field(value, one.message_type.fields_by_name["value"])
    return values_of(value)


def _time(value: Any, name: str) -> int:
    seconds, nanos = value.seconds, value.nanos
    if name == _TIMES[0]:
        good = -62_135_596_800 <= seconds <= 253_402_300_799 and 0 <= nanos < _NANOS
    else:
        good = abs(seconds) <= 315_576_000_000 and abs(nanos) < _NANOS and seconds * nanos >= 0
    if not good:
        raise Unfit
    cut = abs(nanos) // 1000
    return int(seconds * _MICROS + (cut if nanos >= 0 else -cut))
