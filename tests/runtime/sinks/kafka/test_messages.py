"""Tests that readers of deliveries' Kafka messages get the changed rows, for random changes."""

from __future__ import annotations

import json
import random
from collections import Counter
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from anabranch_contract.connectors.kafka_sinks import KafkaPayload, KafkaSinkOptions
from anabranch_runtime.errors import SinkError
from anabranch_runtime.sinks.kafka.messages import messages_of
from tests.support.scenarios.seeds import mostly_slow

NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
#: A row of the tests: k, v.
Row = tuple[int | None, str]


def made(table: pa.Table, payload: str = "json", key: str = "") -> list[tuple[Any, Any]]:
    names = tuple(key.split(",")) if key else ()
    options = KafkaSinkOptions("t", names, KafkaPayload(payload))
    found: list[tuple[Any, Any]] = []
    for messages in messages_of(table, options):
        for keys, values in messages.parts():
            found += zip([None] * len(values) if keys is None else keys, values, strict=True)
    return found


def changes(*rows: tuple[int | None, str, int]) -> pa.Table:
    """Return rows with their weights, 1 or -1."""
    return pa.table({
        "k": pa.array([k for k, _, _ in rows], pa.int64()),
        "v": pa.array([v for _, v, _ in rows], pa.string()),
        "anabranch_change": ["insert" if w > 0 else "delete" for _, _, w in rows],
    })  # fmt: skip


def row(text: bytes) -> Row:
    document = json.loads(text)
    assert list(document) == ["k", "v"]
    return document["k"], document["v"]


def drawn(chance: random.Random, rows: Counter[Row], unique: bool) -> list[tuple[Any, ...]]:
    """Return random changes from ``rows``, which are updated; some changes cancel out."""
    found: list[tuple[Any, ...]] = []
    for k in (*range(6), None):
        for _ in range(chance.choice((0, 0, 1, 2))):
            here = [r for r in rows.elements() if r[0] == k]
            if here and (unique or chance.random() < 0.5):
                gone = chance.choice(here)
                rows[gone] -= 1
                found.append((*gone, -1))
            if chance.random() < 0.7 and not (unique and any(r[0] == k for r in +rows)):
                new = k, chance.choice(('a"\\', "b", "ü"))
                rows[new] += 1
                found.append((*new, 1))
    chance.shuffle(found)
    return found


@pytest.mark.parametrize("seed", mostly_slow(range(30), 8))
def test_a_table_of_upserts_is_the_table_of_rows(seed: int) -> None:
    chance, rows = random.Random(seed), Counter[Row]()
    table: dict[bytes, bytes] = {}
    for _ in range(20):
        delivery = changes(*drawn(chance, rows, unique=True))
        messages = made(delivery, "upsert", "k")
        keys = [key for key, _ in messages]
        assert len(set(keys)) == len(keys)
        for key, value in messages:
            # No missing row is deleted, and no row is replaced by itself.
            assert table.get(key) != value
            if value is None:
                del table[key]
            else:
                table[key] = value
                assert json.loads(key) == {"k": json.loads(value)["k"]}
        assert Counter(map(row, table.values())) == +rows


@pytest.mark.parametrize("seed", mostly_slow(range(30), 8))
@pytest.mark.parametrize("key", ["k", ""])
def test_envelopes_add_up_to_the_rows(seed: int, key: str) -> None:
    chance, rows, table = random.Random(seed), Counter[Row](), Counter[Row]()
    for _ in range(20):
        messages = made(changes(*drawn(chance, rows, unique=False)), "debezium", key)
        # As several readers would see them, one per partition.
        for own in sorted({key for key, _ in messages}):
            for _, value in (one for one in messages if one[0] == own):
                envelope = json.loads(value)
                operation = envelope.pop("op")
                assert operation in ("u" if key else "") + "cd"
                assert (envelope["before"] is None) == (operation == "c")
                assert (envelope["after"] is None) == (operation == "d")
                for side, weight in (("before", -1), ("after", 1)):
                    if envelope[side] is not None:
                        found = row(json.dumps(envelope[side]).encode())
                        names = ("k",) if key else ("k", "v")
                        assert json.loads(own) == {n: envelope[side][n] for n in names}
                        table[found] += weight
                        assert table[found] >= 0
        assert +table == +rows


@pytest.mark.parametrize(
    "rows",
    [
        [(1, "a", 1), (1, "b", 1)],
        [(1, "a", 1), (1, "a", 1)],
        [(1, "a", -1), (1, "b", -1)],
        [(1, "a", -1), (1, "b", 1), (1, "c", 1)],
    ],
)
def test_rows_of_one_key_are_refused_as_upserts(rows: list[Any]) -> None:
    with pytest.raises(SinkError) as caught:
        made(changes((2, "x", 1), *rows), "upsert", "k")
    assert caught.value.code == "key-not-unique"
    assert '{"k":1}' in caught.value.message


def test_a_view_is_its_rows_by_their_identity() -> None:
    view = pa.table({
        "n": [5, None, 7],
        "k": ["a", "b", None],
        "anabranch_change": ["upsert", "delete", "upsert"],
        "anabranch_version": [3, 3, 3],
    })  # fmt: skip
    assert made(view, "upsert", "k") == [
        (b'{"k":"a"}', b'{"n":5,"k":"a"}'),
        (b'{"k":"b"}', None),
        (b'{"k":null}', b'{"n":7,"k":null}'),
    ]
    one = view.slice(0, 1).drop_columns(["k"])
    assert made(one, "upsert") == [(b"{}", b'{"n":5}')]
    assert made(one)[0][1] == b'{"n":5,"anabranch_change":"upsert","anabranch_version":3}'


@pytest.mark.parametrize(
    ("value", "kind", "key"),
    [
        ('a "b"', pa.string(), b'a "b"'),
        ("a", pa.dictionary(pa.int32(), pa.string()), b"a"),
        (b"\xff", pa.binary(), b"\xff"),
        (-3, pa.int16(), b"-3"),
        (True, pa.bool_(), b"true"),
        (1.5, pa.float64(), b"1.5"),
        (float("nan"), pa.float64(), b"NaN"),
        (Decimal("1.50"), pa.decimal128(5, 2), b"1.50"),
        (date(2026, 1, 31), pa.date32(), b"2026-01-31"),
        (NEW_YEAR, pa.timestamp("us", "UTC"), b"2026-01-01T00:00:00.000000Z"),
        ([1, 2], pa.list_(pa.int64()), b"[1,2]"),
    ],
)  # fmt: skip
def test_a_key_of_one_column_is_its_text(value: Any, kind: pa.DataType, key: bytes) -> None:
    table = pa.table({"x": pa.array([value, None], kind), "y": [1, 2]})
    assert [k for k, _ in made(table, key="X")] == [key, None]


def test_other_keys_are_objects() -> None:
    table = pa.table({"x": ["a", None], "y": [1, 2]})
    assert [k for k, _ in made(table, key="y,x")] == [b'{"y":1,"x":"a"}', b'{"y":2,"x":null}']
    assert [k for k, _ in made(table)] == [None, None]
    assert [k for k, _ in made(table, "debezium", "y")] == [b'{"y":1}', b'{"y":2}']


@pytest.mark.parametrize("payload", ["json", "debezium"])
def test_many_and_large_rows_are_sent_in_parts(payload: str) -> None:
    rows = pa.table({"k": range(70_000), "v": ["x" * 400] * 70_000})
    found = made(rows, payload, "k")
    assert len(found) == len(set(found)) == 70_000
    options = KafkaSinkOptions("t", ("k",), KafkaPayload(payload))
    parts = [part for messages in messages_of(rows, options) for part in messages.parts()]
    assert len(parts) > 1
    assert max(sum(len(v or b"") for v in values) for _, values in parts) < 20_000_000
    assert made(rows.slice(0, 0), payload, "k") == []
