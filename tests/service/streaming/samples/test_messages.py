"""Tests of samples of Kafka topics, and of proposals made from them, over a real broker."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from anabranch_service.streaming.samples import messages
from scripts.kafka import Broker
from tests.runtime.sources.avro.test_columns import encoded, record
from tests.service.routes.test_source_tests_proposals import (
    arrow,
    propose,
    propose_again,
    registered,
    types,
)
from tests.support.oracles.protobuf import compiled, message_class
from tests.support.surroundings.kafka import Topics
from tests.support.surroundings.registry import framed
from tests.support.surroundings.registry import serving as registry
from tests.support.worlds.service import Service


@pytest.fixture
def topics(kafka: Broker, monkeypatch: pytest.MonkeyPatch) -> Topics:
    # For a broker that is busy; a request takes at most ten.
    monkeypatch.setattr(messages, "SECONDS", 8.0)
    return Topics(kafka.address)


def topic(kafka: Broker, name: str, **options: str) -> dict[str, Any]:
    return {"format": "kafka", "options": {"brokers": kafka.address, "topics": name, **options}}


def test_topics_of_json(service: Service, kafka: Broker, topics: Topics) -> None:
    name = topics.make(2)
    found = propose(service, topic(kafka, name))
    assert (found["outcome"], found["found"], found["registration"]) == ("empty", 0, None)
    topics.push(name, [b'{"id": 1, "at": "2026-01-01T00:00:00Z"}', b"no JSON", None], 0, key=b"7")
    topics.push(name, [b'{\n"id": 2, "at": "2026-01-01T00:00:01Z"}'], 1, key=b"8")
    found = propose(service, topic(kafka, name, key_column="k", partition_column="p"))
    assert (found["outcome"], found["found"], found["unit"]) == ("read", 4, "messages")
    assert types(found) == {"id": "bigint", "at": "timestamp", "k": "string", "p": "int"}
    assert found["invalid"] == 2
    assert {m["place"] for m in found["misfits"]} == {
        f"{name}, partition 0, offset {offset}" for offset in (1, 2)
    }
    assert {(r["k"], r["p"]) for r in found["rows"]} == {("7", 0), ("8", 1), (None, None)}
    made = service.post("/v1/streams", found["registration"])
    assert made["source"]["options"]["payload"] == "json"
    assert made["event_time"] == "at"


def test_topics_of_arrow_and_of_unknown_messages(
    service: Service, kafka: Broker, topics: Topics
) -> None:
    name = topics.make()
    topics.push(name, [arrow(pa.table({"a": pa.array([1, 2], pa.int32())}))])
    found = propose(service, topic(kafka, name))
    assert (types(found), len(found["rows"])) == ({"a": "int"}, 2)
    registered(service, found)
    name = topics.make()
    topics.push(name, [b"\0\0\0\0\7abc"])
    found = propose_again(service, topic(kafka, name))
    assert found["error"]["code"] == "unknown-payload"
    assert "schema 7 in a registry" in found["error"]["remedy"]


def test_topics_of_avro(service: Service, kafka: Broker, topics: Topics) -> None:
    when = {"type": "long", "logicalType": "timestamp-millis"}
    old, new = record(id="int", at=when), record(id="int", at=when, more=["null", "string"])
    values = [{"id": n, "at": 1000 * n} for n in (1, 2)]
    plain, name = topics.make(), topics.make()
    topics.push(plain, [encoded(old, value) for value in values] + [b"\2"])
    found = propose(service, topic(kafka, plain, schema=json.dumps(old)))
    assert types(found) == {"id": "int", "at": "timestamp"}
    assert [r["at"] for r in found["rows"][:2]] == ["1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"]
    assert (found["invalid"], found["misfits"][0]["place"]) == (
        1,
        f"{plain}, partition 0, offset 2",
    )
    with registry({7: old, 8: new}) as options:
        topics.push(name, [framed(7, encoded(old, values[0]))])
        topics.push(name, [framed(8, encoded(new, {**values[1], "more": "x"}))])
        found = propose(service, topic(kafka, name, **options))
        assert types(found) == {"id": "int", "at": "timestamp", "more": "string"}
        assert ([r["more"] for r in found["rows"]], found["notes"]) == ([None, "x"], [])
        assert found["registration"]["source"]["options"]["payload"] == "avro"
        registered(service, found)
        service.call("DELETE", "/v1/streams/sales", 204)
    found = propose(service, topic(kafka, name, **options))
    assert (found["error"]["code"], found["error"]["field"]) == (
        "no-server", "source.options.registry",
    )  # fmt: skip


def test_topics_of_protobuf(service: Service, kafka: Broker, topics: Topics) -> None:
    text = 'syntax = "proto3"; import "google/protobuf/timestamp.proto";'
    text += "message Row { int32 id = 1; google.protobuf.Timestamp at = 2; } message Other {}"
    newer = text.replace("int32 id = 1;", "int32 id = 1; map<string, int32> more = 3;")
    old, new = (message_class(compiled(one), "Row") for one in (text, newer))
    rows: list[Any] = [old(id=n, at={"seconds": n}) for n in (1, 2)]
    plain, name = topics.make(), topics.make()
    topics.push(plain, [row.SerializeToString() for row in rows] + [b"\2"])
    found = propose(service, topic(kafka, plain, schema=text, message="Row"))
    assert types(found) == {"id": "int", "at": "timestamp"}
    assert [r["at"] for r in found["rows"][:2]] == ["1970-01-01T00:00:01Z", "1970-01-01T00:00:02Z"]
    assert (found["invalid"], found["misfits"][0]["place"]) == (
        1,
        f"{plain}, partition 0, offset 2",
    )
    registered(service, found)
    service.call("DELETE", "/v1/streams/sales", 204)
    several = propose(service, topic(kafka, plain, schema=text))["error"]
    assert (several["code"], several["field"]) == ("no-message", "source.options.message")
    with registry({}, protobuf={7: text, 8: newer}) as options:
        last: Any = new(id=3, at={"seconds": 3}, more={"x": 1})
        topics.push(name, [framed(7, b"\0" + rows[0].SerializeToString())])
        topics.push(name, [framed(8, b"\0" + last.SerializeToString()), framed(9, b"\0")])
        found = propose(service, topic(kafka, name, **options))
        assert types(found) == {"id": "int", "at": "timestamp", "more": "map<string,int>"}
        assert (found["invalid"], found["notes"]) == (1, [])
        assert [r["more"] for r in found["rows"][:2]] == [None, {"x": 1}]
        assert found["registration"]["source"]["options"]["payload"] == "protobuf"
        registered(service, found)


def test_topics_that_are_not_there(service: Service, kafka: Broker) -> None:
    found = propose(service, topic(kafka, "no-such-topic"))
    assert (found["outcome"], found["error"]["code"]) == ("failed", "no-topic")
    for brokers in ("127.0.0.1:1", "192.0.2.1:9092"):
        source = {"format": "kafka", "options": {"brokers": brokers, "topics": "t"}}
        found = propose(service, source)
        assert found["error"]["code"] == "no-broker"
        assert found["error"]["field"] == "source.options.brokers"
