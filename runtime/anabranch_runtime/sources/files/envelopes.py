"""Change envelopes of Debezium, as JSON lines: unwrapped into rows that insert or delete.

An envelope has the values before and after a change, and its operation. A creation (``c``) and a
row of the first snapshot (``r``) insert, a deletion (``d``) deletes, an update (``u``) deletes the
values before and inserts those after. The JSON text of the values is passed on unchanged after the
operation, so no number is rounded.

>>> unwrapped(b'{"op":"u","before":{"id":1,"x":2.50},"after":{"id":1,"x":3}}', "op")
(b'{"op":"d","id":1,"x":2.50}\\n{"op":"c","id":1,"x":3}', [])
>>> unwrapped(b'{"op":"u","before":null,"after":{"id":1}}', "op")
(b'', [b'{"op":"u","before":null,"after":{"id":1}}'])
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import TypeAlias

import msgspec

#: Operation -> whether the values before are deleted, and whether the values after are inserted.
_HALVES = {"c": (False, True), "r": (False, True), "u": (True, True), "d": (True, False)}


#: Form of a stream's envelopes: arguments ``operation`` and ``keyed`` of :func:`unwrapped`.
Envelope: TypeAlias = tuple[str, bool]


class _Change(msgspec.Struct):
    """Relevant fields of an envelope, which are in ``payload`` if it has a schema."""

    op: str | None = None
    before: msgspec.Raw = msgspec.Raw()
    after: msgspec.Raw = msgspec.Raw()
    payload: msgspec.Raw = msgspec.Raw()


_DECODER = msgspec.json.Decoder(_Change)


def unwrapped(lines: bytes, operation: str, keyed: bool = False) -> tuple[bytes, list[bytes]]:
    """Return the rows of Debezium envelopes in ``lines``, as JSON lines, and all other lines.

    Args:
        operation: name of the field of a row that is set to ``c`` (insert) or ``d`` (delete).
        keyed: whether a row replaces the row of its key, so that an update may lack the old values.
    """
    given = [line for line in lines.split(b"\n") if line and not line.isspace()]
    rows, _, bad = unwrapped_rows(given, operation, keyed)
    return b"\n".join(rows), [given[i] for i in bad]


def unwrapped_rows(
    envelopes: Sequence[bytes], operation: str, keyed: bool = False
) -> tuple[list[bytes], list[int], list[int]]:
    """Return the rows of ``envelopes`` (see :func:`unwrapped`), for each row its envelope's number,
    and the numbers of messages that are not envelopes."""
    rows, origins, bad = list[bytes](), list[int](), list[int]()
    name = json.dumps(operation).encode()
    for number, envelope in enumerate(envelopes):
        try:
            rows += _rows(_change(envelope), name, keyed=keyed)
        except (msgspec.DecodeError, ValueError):
            bad.append(number)
        origins += [number] * (len(rows) - len(origins))
    return rows, origins, bad


def _change(line: bytes) -> _Change:
    change = _DECODER.decode(line)
    if change.op is None and bytes(change.payload):
        return _DECODER.decode(change.payload)
    return change


def _rows(change: _Change, name: bytes, *, keyed: bool) -> Iterator[bytes]:
    """Yield the rows of an envelope; ValueError, before any row, if values are missing."""
    halves = _HALVES.get(change.op or "")
    if halves is None:
        raise ValueError(f"unknown operation {change.op!r}")
    if keyed and change.op == "u" and bytes(change.before).strip() in (b"", b"null"):
        halves = (False, True)
    values = zip(halves, (change.before, change.after), (b'"d"', b'"c"'), strict=True)
    found = [(_fields(raw), code) for wanted, raw, code in values if wanted]
    for fields, code in found:
        yield b"{" + name + b":" + code + (b"," + fields if fields else b"") + b"}"


def _fields(raw: msgspec.Raw) -> bytes:
    """Return the text between the braces of a JSON object (of an envelope's row)."""
    text = bytes(raw).strip()
    if not text.startswith(b"{"):
        raise ValueError("it has no values")
    return text[1:-1].strip()
