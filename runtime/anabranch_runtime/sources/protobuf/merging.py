"""Rewriting of Protobuf messages with parts to be merged: each nested message then occurs once.
Protobuf merges the occurrences of a message field. If that message has a ``oneof``, a later part
may undo an earlier one, so the kernel can't write values as it reads them. Such messages arise only
if encodings are concatenated; being rare, they are rewritten one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from anabranch_runtime.sources.protobuf import kernel
from anabranch_runtime.sources.protobuf.program import ProtoProgram


def merged(program: ProtoProgram, message: bytes, node: int = 0) -> bytes:
    """Return a message with the same values and each nested message once.

    Args:
        program: the program of the columns.
        message: a well-formed message.
        node: the row of the message's type in the program.
    """
    first, count = program.nodes[node, [kernel.FIRST, kernel.COUNT]].tolist()
    rows = {int(program.fields[row, kernel.NUMBER]): row for row in range(first, first + count)}
    parts, contents = list[tuple[int, bytes]](), dict[int, bytes]()
    member = dict[int, int]()
    for number, wire, part, content in _parts(message):
        row = rows.get(number, -1)
        fields = program.fields[row]
        if row < 0 or not kernel.is_of(program.fields, row, wire):
            parts.append((-1, part))
            continue
        group = int(fields[kernel.ONEOF])
        if group >= 0 and (wire or _is_known(program, row, part)):
            earlier = member.setdefault(group, row)
            if earlier != row:
                parts = [one for one in parts if one[0] != earlier]
                contents.pop(earlier, None)
                member[group] = row
        if fields[kernel.NODE] < 0:
            parts.append((row, part))
        elif fields[kernel.MERGES] > 0:
            if row not in contents:
                parts.append((row, b""))
            contents[row] = contents.get(row, b"") + content
        else:
            parts.append((row, _wrapped(program, row, content)))
    return b"".join(
        part if row not in contents else _wrapped(program, row, contents[row])
        for row, part in parts
    )


def _is_known(program: ProtoProgram, row: int, part: bytes) -> bool:
    """Whether the number in ``part`` is one of the values of its field's enum."""
    data = np.frombuffer(part, np.uint8)
    _, at = kernel.number_at(data, 0, len(data))
    value, _ = kernel.number_at(data, at, len(data))
    number = np.uint64(value).astype(np.int32)
    return bool(kernel.is_known(program.fields, row, program.numbers, int(number)))


def _wrapped(program: ProtoProgram, row: int, content: bytes) -> bytes:
    """Merge repeated fields in the message ``content``, and encode it as a field's value."""
    fields = program.fields[row]
    inner = merged(program, content, int(fields[kernel.NODE]))
    tag = int(fields[kernel.NUMBER]) << 3
    if fields[kernel.KIND] == kernel.GROUP:
        return _varint(tag | 3) + inner + _varint(tag | 4)
    return _varint(tag | 2) + _varint(len(inner)) + inner


def _parts(message: bytes) -> Iterator[tuple[int, int, bytes, bytes]]:
    """Yield, per field of a message, its number and wire type, its bytes, and its content."""
    data, at = np.frombuffer(message, np.uint8), 0
    open = np.empty(kernel.DEEP + 1, np.int64)
    while at < len(data):
        tag, begin = kernel.number_at(data, at, len(data))
        number, wire = int(tag) >> 3, int(tag) & 7
        content, end = b"", kernel.skip(data, begin, len(data), number, wire, 0, open)
        if wire == 2:
            _, start = kernel.number_at(data, begin, len(data))
            content = message[start:end]
        elif wire == 3:
            content = message[begin : _last_tag(data, begin, end, open)]
        yield number, wire, message[at:end], content
        at = end


def _last_tag(data: NDArray[np.uint8], at: int, end: int, open: NDArray[np.int64]) -> int:
    """Return the place of the last tag of a group whose fields begin at ``at``."""
    while True:
        tag, begin = kernel.number_at(data, at, end)
        if begin == end:
            return at
        at = int(kernel.skip(data, begin, end, int(tag) >> 3, int(tag) & 7, 0, open))


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    return bytes([*found, number])
