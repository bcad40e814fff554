"""Tests of the options of Kafka topics: values, refusals, and references to secrets."""

from __future__ import annotations

import pytest

from anabranch_contract.connectors.check import check_source_access
from anabranch_contract.connectors.kafka_sources import (
    MessagePayload,
    check_parts,
    client_settings,
    is_own_topic,
    kafka_options,
)
from anabranch_contract.connectors.policy import AccessError, AccessPolicy
from anabranch_contract.connectors.sources import OnLoss, StreamStart
from anabranch_contract.errors import StreamError
from anabranch_contract.queries.types import parse_type

GIVEN = {"brokers": "b:9092", "topics": "t"}
SCHEMA = '{"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}'
PROTO = 'syntax = "proto3"; message A {} message B {}'
LOGIN = {"security": "sasl_ssl", "mechanism": "PLAIN", "user": "ann"}


def test_what_is_read_from_options() -> None:
    found = kafka_options({**GIVEN, "on_loss": "skip", "group": "", "offset_column": "o"})
    assert (found.topics, found.start) == (("t",), StreamStart.EARLIEST)
    assert (found.on_loss, found.group, found.parts) == (OnLoss.SKIP, "", {"o": "offset"})
    at = kafka_options({**GIVEN, "start": '{"t": {"0": 17, "3": 0}}'})
    assert at.offsets == {("t", 0): 17, ("t", 3): 0}
    protobuf = {**GIVEN, "payload": "protobuf", "schema": PROTO, "message": "B"}
    assert kafka_options(protobuf).payload is MessagePayload.PROTOBUF
    assert kafka_options({**GIVEN, "start": "1970-01-01T00:00:01"}).start == 1000
    assert kafka_options({**GIVEN, "start": "1970-01-01T01:00:01+01:00"}).start == 1000
    assert not is_own_topic("kafka", {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"})


@pytest.mark.parametrize(
    ("options", "option"),
    [
        ({"topics": "t"}, "brokers"),
        ({"brokers": "b:9092"}, "topics"),
        ({**GIVEN, "topics": "a,a"}, "topics"),
        ({**GIVEN, "topics": "a b"}, "topics"),
        ({**GIVEN, "subscribe": "t"}, "subscribe"),
        ({**GIVEN, "payload": "xml"}, "payload"),
        ({**GIVEN, "payload": "avro"}, "schema"),
        ({**GIVEN, "schema": SCHEMA}, "schema"),
        ({**GIVEN, "payload": "avro", "schema": '"int"'}, "schema"),
        ({**GIVEN, "payload": "avro", "schema": "{"}, "schema"),
        ({**GIVEN, "payload": "avro", "schema": SCHEMA, "registry_user": "a"}, "registry_user"),
        ({**GIVEN, "registry": "http://r"}, "registry"),
        ({**GIVEN, "payload": "avro", "schema": SCHEMA, "message": "r"}, "message"),
        ({**GIVEN, "payload": "protobuf"}, "schema"),
        ({**GIVEN, "payload": "protobuf", "schema": SCHEMA}, "schema"),
        ({**GIVEN, "payload": "protobuf", "schema": PROTO}, "message"),
        ({**GIVEN, "payload": "protobuf", "schema": PROTO, "message": "C"}, "message"),
        ({**GIVEN, "payload": "protobuf", "schema": PROTO, "registry": "http://r"}, "schema"),
        ({**GIVEN, "start": "yesterday"}, "start"),
        ({**GIVEN, "start": '{"u": {"0": 1}}'}, "start"),
        ({**GIVEN, "start": '{"t": {"0": -1}}'}, "start"),
        ({**GIVEN, "start": '{"t": 1}'}, "start"),
        ({**GIVEN, "key_column": "a", "topic_column": "a"}, "topic_column"),
        ({**GIVEN, "user": "ann"}, "user"),
        ({**GIVEN, **LOGIN}, "password"),
        ({**GIVEN, "ca_file": "/ca.pem"}, "ca_file"),
        ({**GIVEN, "security": "ssl", "certificate_file": "/c.pem"}, "certificate_file"),
    ],
)
def test_options_that_are_refused(options: dict[str, str], option: str) -> None:
    with pytest.raises(StreamError) as refused:
        kafka_options(options)
    assert refused.value.field == f"source.options.{option}"


@pytest.mark.parametrize(
    ("part", "kind", "fits"),
    [
        ("key", "bigint", True),
        ("key", "array<int>", False),
        ("timestamp", "timestamp", True),
        ("timestamp", "bigint", False),
        ("partition", "int", True),
        ("offset", "int", False),
        ("headers", "array<struct<key:string,value:string>>", True),
        ("headers", "string", False),
    ],
)
def test_types_of_columns_for_parts_of_messages(part: str, kind: str, *, fits: bool) -> None:
    options = kafka_options({**GIVEN, f"{part}_column": "c"})
    if fits:
        check_parts(options, [("c", parse_type(kind))])
        return
    with pytest.raises(StreamError, match="can't hold the"):
        check_parts(options, [("c", parse_type(kind))])
    with pytest.raises(StreamError, match="no column"):
        check_parts(options, [("d", parse_type(kind))])


def test_brokers_files_and_secrets_are_checked() -> None:
    policy = AccessPolicy(hosts=("b:9092", "r:8081"))

    def check(**options: str) -> None:
        check_source_access("kafka", None, {**GIVEN, **options}, policy, lambda path: path)

    check(**LOGIN, password="${ANABRANCH_SOURCE_P}")
    check(registry="http://r:8081/apis/ccompat/v7", registry_password="${ANABRANCH_SOURCE_P}")
    for wrong in (
        {"brokers": "c:9092"},
        {"password": "word"},
        {"private_key": "-----BEGIN"},
        {"user": "${ANABRANCH_SOURCE_P}"},
        {"ca_file": "/etc/ca.pem"},
        {"registry": "http://other:8081"},
        {"registry": "http://127.0.0.1:8081"},
        {"registry": "http://ann:word@r:8081"},
        {"registry": "file:///etc/passwd"},
        {"registry": "https://r/?x=1"},
        {"registry_password": "word"},
    ):
        with pytest.raises(AccessError):
            check(**wrong)


def test_settings_of_a_client() -> None:
    assert client_settings({**GIVEN, **LOGIN, "password": "word", "ca_file": "/ca.pem"}) == {
        "bootstrap.servers": "b:9092",
        "security.protocol": "sasl_ssl",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "ann",
        "sasl.password": "word",
        "ssl.ca.location": "/ca.pem",
    }
