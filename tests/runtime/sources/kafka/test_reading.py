"""Tests of decoding Kafka messages other than JSON: Avro and Protobuf, with or without a registry,
and Arrow.
"""

from __future__ import annotations

import base64
import io
import json
import time
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import fastavro
import pyarrow as pa
import pytest

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.changes import ChangeFormat
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sinks.late import aside
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.kafka.feed import KafkaFeed, kafka_feed
from scripts.kafka import Broker
from tests.support.oracles.protobuf import compiled, message_class
from tests.support.surroundings.kafka import Topics
from tests.support.surroundings.registry import Registry, framed

pytestmark = pytest.mark.usefixtures("patient")

SCHEMA = {
    "type": "record", "name": "r",
    "fields": [
        {"name": "a", "type": "long"},
        {"name": "d", "type": ["null", {"type": "int", "logicalType": "date"}]},
        {"name": "tags", "type": {"type": "array", "items": "string"}},
    ],
}  # fmt: skip
COLUMNS = {"a": "bigint", "d": "date", "tags": "array<string>"}
Make = Callable[..., KafkaFeed]


@pytest.fixture
def topics(kafka: Broker) -> Topics:
    return Topics(kafka.address)


@pytest.fixture
def feed(kafka: Broker) -> Make:
    def make(
        topics: str, columns: dict[str, str], changes: ChangeFormat | None = None, /, **options: str
    ) -> KafkaFeed:
        record = StreamRecord(
            name="s",
            columns=tuple(ColumnRecord(name=c, type=t) for c, t in columns.items()),
            source=SourceRecord(
                format="kafka", options={"brokers": kafka.address, "topics": topics, **options}
            ),
            changes=changes,
        )
        return kafka_feed(record, "test")

    return make


def message(a: int, d: date | None = None, tags: tuple[str, ...] = ()) -> bytes:
    out = io.BytesIO()
    value = {"a": a, "d": d, "tags": list(tags)}
    fastavro.schemaless_writer(out, fastavro.parse_schema(SCHEMA), value)
    return out.getvalue()


def everything(feed: KafkaFeed) -> tuple[list[Any], list[Any]]:
    """Return all rows, and the texts of invalid ones."""
    offset = feed.begin()
    end = feed.advance(offset, feed.waiting(offset).rows)
    return between(feed, offset, end)


def between(feed: KafkaFeed, offset: Any, end: Any) -> tuple[list[Any], list[Any]]:
    """Return the rows of a part, and the texts of invalid ones."""
    good, bad = list[Any](), list[Any]()
    for piece in feed.pieces(offset, end, 1):
        for rows, invalid in read_piece(piece):
            good += rows.to_pylist()
            if invalid is not None:
                kept = aside(invalid, "invalid", 0, None).to_pylist()
                bad += [json.loads(row["_raw"]) for row in kept]
    return good, bad


def test_plain_avro(topics: Topics, feed: Make) -> None:
    name = topics.make()
    day = date(2024, 2, 29)
    whole = message(3, day, ("x", "y"))
    topics.push(
        name, [message(1), message(2, day), whole, whole[:-1], whole + b"\0", None], key=b"7"
    )
    source = feed(
        name, {"k": "int", **COLUMNS, "o": "bigint"},
        payload="avro", schema=json.dumps(SCHEMA), offset_column="o", key_column="k",
    )  # fmt: skip
    good, bad = everything(source)
    assert good == [
        {"k": 7, "a": 1, "d": None, "tags": [], "o": 0},
        {"k": 7, "a": 2, "d": day, "tags": [], "o": 1},
        {"k": 7, "a": 3, "d": day, "tags": ["x", "y"], "o": 2},
    ]
    found = {row["offset"]: row["value"] for row in bad}
    assert sorted(found) == [3, 4, 5]
    assert found[3] == f"base64:{base64.b64encode(whole[:-1]).decode()}"
    assert found[5] is None


def test_tombstones_delete_rows_of_avro(topics: Topics, feed: Make) -> None:
    name = topics.make()
    topics.push(name, [message(1), None, message(2)], key=b"7")
    keyed = ChangeFormat(operation=None, key=("k",), null_deletes=True)
    columns = {"k": "int", "a": "bigint"}
    options = {"payload": "avro", "schema": json.dumps(SCHEMA), "key_column": "k"}
    good, bad = everything(feed(name, columns, keyed, **options))
    assert good == [{"k": 7, "a": 1}, {"k": 7, "a": None}, {"k": 7, "a": 2}]
    assert not bad


def test_messages_wait_for_the_registry(topics: Topics, feed: Make) -> None:
    name = topics.make(2)
    newer = {**SCHEMA, "fields": [*SCHEMA["fields"][:2], {"name": "more", "type": "string"}]}
    registry = Registry({1: SCHEMA, 2: newer})
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(newer), {"a": 5, "d": None, "more": "m"})
    topics.push(name, [framed(1, message(1)), framed(3, message(2))], 0)
    topics.push(name, [framed(2, out.getvalue()), framed(1, message(6)), message(7)], 1)
    source = feed(name, COLUMNS, payload="avro", registry=registry.address)
    registry.login = "another"
    with pytest.raises(SourceError, match=r"schema registry at .* status 401"):
        everything(source)
    registry.login = None
    good, bad = everything(source)
    registry.close()
    assert sorted((row["a"], row["tags"]) for row in good) == [(1, []), (5, None), (6, [])]
    assert sorted((row["partition"], row["offset"]) for row in bad) == [(0, 1), (1, 2)]


PROTO = """
    syntax = "proto3";
    import "google/protobuf/timestamp.proto";
    message Row { int64 a = 1; google.protobuf.Timestamp at = 2; repeated string tags = 3; }
    message Other { int64 a = 1; }"""


def test_plain_protobuf(topics: Topics, feed: Make) -> None:
    name, descriptors = topics.make(), compiled(PROTO)
    cls: Any = message_class(descriptors, "Row")
    whole = cls(a=3, at={"seconds": 5}, tags=["x", "y"]).SerializeToString()
    topics.push(name, [whole, whole[:-1], b"", None, b"\x1a\1\xff", whole + b"\0"], key=b"7")
    columns = {"k": "int", "a": "bigint", "at": "timestamp", "tags": "array<string>", "o": "bigint"}
    for schema in (PROTO, base64.b64encode(descriptors).decode()):
        source = feed(
            name, columns, payload="protobuf", schema=schema, message="Row", offset_column="o",
            key_column="k",
        )  # fmt: skip
        good, bad = everything(source)
        at = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
        assert good == [
            {"k": 7, "a": 3, "at": at, "tags": ["x", "y"], "o": 0},
            {"k": 7, "a": 0, "at": None, "tags": [], "o": 2},
        ]
        found = {row["offset"]: row["value"] for row in bad}
        assert sorted(found) == [1, 3, 4, 5]
        # Raw bytes that are UTF-8 are shown as text.
        assert found[1] == whole[:-1].decode()
        assert found[3] is None
    keyed = ChangeFormat(operation=None, key=("k",), null_deletes=True)
    source = feed(name, {"k": "int", "a": "bigint"}, keyed, payload="protobuf", schema=PROTO,
                  message="Row", key_column="k")  # fmt: skip
    assert [row["a"] for row in everything(source)[0]] == [3, 0, None, 0]


def test_protobuf_of_a_registry(topics: Topics, feed: Make) -> None:
    name = topics.make(2)
    newer = PROTO.replace("int64 a = 1;", "int64 a = 1; bool more = 9;")
    registry = Registry({3: SCHEMA})
    registry.add_protobuf(1, PROTO)
    registry.add_protobuf(2, newer)
    old, new = (message_class(compiled(text), "Row") for text in (PROTO, newer))
    first: Any = old(a=1, tags=["x"])
    second: Any = new(a=2, more=True)
    topics.push(name, [framed(1, b"\0" + first.SerializeToString()), framed(3, message(2))], 0)
    topics.push(
        name, [framed(2, b"\0" + second.SerializeToString()), framed(1, b"\2\2\x08\7"), b"\0"], 1
    )
    columns = {"a": "bigint", "more": "boolean"}
    source = feed(name, columns, payload="protobuf", registry=registry.address, message="Row")
    registry.login = "another"
    with pytest.raises(SourceError, match=r"schema registry at .* status 401"):
        everything(source)
    registry.login = None
    good, bad = everything(source)
    registry.close()
    assert sorted((row["a"], row["more"]) for row in good) == [(1, None), (2, True)]
    assert sorted((row["partition"], row["offset"]) for row in bad) == [(0, 1), (1, 1), (1, 2)]


def stream(*batches: pa.RecordBatch) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, batches[0].schema) as writer:
        for one in batches:
            writer.write_batch(one)
    return sink.getvalue()


def test_batches_are_sized_by_the_rows_of_messages(topics: Topics, feed: Make) -> None:
    name = topics.make(2)
    for partition in range(2):
        some = (pa.record_batch({"a": range(i * 200, i * 200 + 200)}) for i in range(20))
        topics.push(name, map(stream, some), partition)
    source = feed(name, {"a": "bigint"}, payload="arrow")
    offset = source.begin()
    deadline = time.monotonic() + 60
    while (rows := source.waiting(offset).rows) != 8_000:
        assert rows == 40_000
        assert time.monotonic() < deadline
        time.sleep(0.05)
    end = source.advance(offset, 2_000)
    assert sum(piece.rows for piece in source.pieces(offset, end, 2)) == 2_000
    good, bad = between(source, offset, end)
    assert (len(good), bad) == (2_000, [])


def test_arrow_messages_have_many_rows(topics: Topics, feed: Make) -> None:
    name = topics.make()
    batch = pa.record_batch({"a": pa.array([1, 2, 3], pa.int32()), "x": ["p", "q", "r"]})
    wide = pa.record_batch({"a": pa.array([4, 1 << 40]), "x": ["s", "t"]})
    lacking = pa.record_batch({"x": ["u", "v"]})
    sent = [stream(batch, batch.slice(1)), b"nonsense", stream(wide), stream(batch.slice(3)), None]
    topics.push(name, [*sent, stream(lacking)])
    columns = {"a": "int", "x": "string", "o": "bigint"}
    good, bad = everything(feed(name, columns, payload="arrow", offset_column="o"))
    assert [(row["a"], row["x"], row["o"]) for row in good] == [
        (1, "p", 0), (2, "q", 0), (3, "r", 0), (2, "q", 0), (3, "r", 0), (4, "s", 2)
    ]  # fmt: skip
    assert sorted(row["offset"] for row in bad) == [1, 2, 4, 5, 5]
    assert json.loads(next(row for row in bad if row["offset"] == 2)["value"]) == {
        "a": 1 << 40, "x": "t"
    }  # fmt: skip
