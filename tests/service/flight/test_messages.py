"""Compare messages of Flight SQL with the Protocol Buffers library."""

from __future__ import annotations

import pytest
from google.protobuf.any_pb2 import Any as Wrapped
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from hypothesis import given
from hypothesis import strategies as st

from anabranch_service.flight.messages import BadMessage, Command, wrapped

PREFIX = "type.googleapis.com/arrow.flight.protocol.sql."


def packed(content: bytes) -> bytes:
    outer = Wrapped(type_url=PREFIX + "Some", value=content)
    return bytes(outer.SerializeToString())


@given(st.text(max_size=300), st.integers(0, 2**31 - 1), st.booleans())
def test_fields_of_a_message_are_read(text: str, number: int, flag: bool) -> None:
    field = FieldDescriptorProto(name=text, number=number, proto3_optional=flag)
    found = Command.read(packed(field.SerializeToString()))
    assert found.kind == "Some"
    assert (found.text(1), found.numbers(3), found.flag(17)) == (text, [number], flag)
    assert (found.text(10), found.texts(10), found.content(10)) == (None, [], b"")


@given(st.lists(st.integers(0, 2**31 - 1)), st.lists(st.text(max_size=9)))
def test_repeated_fields_are_read(numbers: list[int], texts: list[str]) -> None:
    file = FileDescriptorProto(dependency=texts, public_dependency=numbers)
    found = Command.read(packed(file.SerializeToString()))
    assert (found.texts(3), found.numbers(10)) == (texts, numbers)


@given(st.binary(max_size=70_000), st.text(max_size=200))
def test_a_message_is_written(content: bytes, text: str) -> None:
    outer = Wrapped.FromString(wrapped("Some", {1: text.encode(), 8: content}))
    assert outer.type_url == PREFIX + "Some"
    found = Command.read(outer.SerializeToString())
    assert (found.text(1), found.content(8)) == (text, content)


@given(st.binary(max_size=60))
def test_other_bytes_are_refused(content: bytes) -> None:
    with pytest.raises(BadMessage):
        Command.read(content)
    with pytest.raises(BadMessage):
        Command.read(packed(b"\x0a\xff"))
