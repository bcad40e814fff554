"""Compare the decoder of PostgreSQL changes with a simple one, on random messages of
the protocol.
"""

from __future__ import annotations

import random
from typing import Any

import pytest

from anabranch_contract.protocol.registered import ColumnRecord, StreamRecord
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.postgres.changes import RowLayout, relation, rows_of, truncated

NAMES = ("id", "unused", "v", "w")
LAYOUT = RowLayout(7, ("public", "t"), tuple((name, 25, -1) for name in NAMES))
#: An unchanged value stored out of line (TOAST), which updates do not contain.
APART = object()


def record(*key: str) -> StreamRecord:
    columns = ("v", "op", "id", "w")
    return StreamRecord(
        name="t",
        columns=tuple(ColumnRecord(name=name, type="string") for name in columns),
        changes=ChangeFormat(key=key),
    )


def number(value: int, size: int) -> bytes:
    return value.to_bytes(size, "big", signed=value < 0)


def row(values: dict[str, Any]) -> bytes:
    found = number(len(NAMES), 2)
    for name in NAMES:
        value = values[name]
        if value is None or value is APART:
            found += b"n" if value is None else b"u"
        else:
            text = value.encode()
            found += b"t" + number(len(text), 4) + text
    return found


def message(old: dict[str, Any] | None, new: dict[str, Any] | None, *, full: bool) -> bytes:
    found = (b"U" if old and new else b"I" if new else b"D") + number(LAYOUT.oid, 4)
    if old is not None:
        sent = old if full else {name: old[name] if name == "id" else None for name in NAMES}
        if full or new is None or new["id"] != old["id"]:
            found += (b"O" if full else b"K") + row(sent)
    if new is not None:
        found += b"N" + row(new)
    return found


def values(chance: random.Random) -> dict[str, Any]:
    texts = ("", "a", "é" * 300, "x\ny", None)
    return {name: chance.choice(texts) for name in NAMES} | {"id": str(chance.randrange(5))}


@pytest.mark.parametrize("key", [("id",), ()])
@pytest.mark.parametrize("seed", range(10))
def test_rows_of_random_changes(key: tuple[str, ...], seed: int) -> None:
    chance = random.Random(seed)
    messages, expected = [], list[dict[str, Any]]()
    for _ in range(200):
        full = not key or chance.random() < 0.5
        old = values(chance) if chance.random() < 0.7 else None
        new = values(chance) if old is None or chance.random() < 0.7 else None
        sent = new
        if full and old is not None and new is not None and old["w"] and chance.random() < 0.5:
            new, sent = new | {"w": old["w"]}, new | {"w": APART}
        messages.append(message(old, sent, full=full))
        if old is not None and (not key or new is None or new["id"] != old["id"]):
            expected.append({"op": "d", "id": old["id"]} | ({} if key else old))
        if new is not None:
            expected.append({"op": "i"} | new)
    found = rows_of(messages, LAYOUT, record(*key))
    assert found.schema.names == ["v", "op", "id", "w", "#arrived"]
    columns = ("v", "op", "id", "w")
    assert found.to_pylist() == [
        {name: one.get(name) for name in columns} | {"#arrived": None} for one in expected
    ]


def test_old_rows_and_values_that_are_missing() -> None:
    old = dict.fromkeys(NAMES, "1")
    apart = old | {"w": APART}
    unused = old | {"unused": APART}
    assert rows_of([message(old, unused, full=False)], LAYOUT, record("id")).num_rows == 1
    with pytest.raises(SourceError, match="'w'"):
        rows_of([message(old, apart, full=False)], LAYOUT, record("id"))
    with pytest.raises(SourceError, match="'w'"):
        rows_of([message(old, apart | {"id": "2"}, full=False)], LAYOUT, record("id"))
    with pytest.raises(SourceError, match="an old row"):
        rows_of([message(old, None, full=False)], LAYOUT, record())


def test_messages_of_layouts_and_truncations() -> None:
    columns = b"".join(b"\1" + n.encode() + b"\0" + number(25, 4) + number(-1, 4) for n in NAMES)
    head = b"R" + number(7, 4) + b"public\0t\0d" + number(len(NAMES), 2)
    assert relation(head + columns) == LAYOUT
    assert truncated(b"T" + number(2, 4) + b"\0" + number(7, 4) + number(9, 4)) == [7, 9]
