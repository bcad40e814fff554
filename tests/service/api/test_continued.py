"""Tests of streams of files or a table continued by topics: registration and refusals over REST."""

from __future__ import annotations

from typing import Any

import pytest

from anabranch_contract.connectors.policy import AccessError, AccessPolicy
from anabranch_contract.protocol.progress import Mode
from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_contract.queries.joins import StreamKind
from anabranch_runtime.sources.permitted import permitted_source
from anabranch_service.errors import Conflict
from anabranch_service.registry.alterations.reread import check_reread
from anabranch_service.registry.permitted import check_place
from anabranch_service.settings import ServiceSettings
from tests.support.worlds.service import Service

TOPICS = {"brokers": "localhost:9092", "topics": "t", "start": "2026-01-31T08:00:00Z"}


def body(**changes: Any) -> dict[str, Any]:
    then = {"format": "kafka", "options": TOPICS} | changes.pop("then", {})
    source = {"format": "iceberg", "options": {"table": "lake.db.t"}, "then": then}
    source |= changes.pop("source", {})
    return {"name": "o", "columns": {"id": "int"}, "source": source, **changes}


def test_a_table_is_continued_by_topics(service: Service) -> None:
    login = {"security": "sasl_ssl", "mechanism": "PLAIN", "user": "u",
             "password": "${ANABRANCH_SOURCE_P}"}  # fmt: skip
    made = service.post("/v1/streams", body(then={"options": TOPICS | login}))
    assert made["source"]["then"]["options"]["start"] == TOPICS["start"]
    assert service.get("/v1/streams/o")["source"]["then"]["format"] == "kafka"
    envelope = {"changes": {"envelope": "debezium"}, "kind": "upsert", "key": ["id"]}
    service.post("/v1/streams", body(name="enveloped", **envelope))
    service.post("/v1/streams", body(name="t", kind="table", key=["id"]))


@pytest.mark.parametrize(
    ("changes", "field", "code"),
    [
        ({"source": {"format": "redis-stream", "options": {}}}, "source.format", "endless-source"),
        (
            {"source": {"options": {"table": "lake.db.t", "start": "latest"}}},
            "source.options.start",
            "bad-option",
        ),
        ({"then": {"format": "redis-stream", "options": {}}}, "source.then",
         "unsupported-continuation"),
        ({"then": {"options": {"brokers": "localhost:9092", "topics": "t"}}},
         "source.then.options.start", "bad-option"),
        ({"then": {"options": TOPICS | {"start": "soon"}}}, "source.then.options.start",
         "bad-option"),
        ({"then": {"options": TOPICS | {"password": "plain"}}},
         "source.then.options.password", "secret-in-source"),
        ({"then": {"options": TOPICS | {"key_column": "k"}}},
         "source.then.options.key_column", "bad-option"),
    ],
)  # fmt: skip
def test_continuations_that_are_refused(
    service: Service, changes: dict[str, Any], field: str, code: str
) -> None:
    refused = service.post("/v1/streams", body(**changes), 422)
    assert [(e["field"], e["code"]) for e in refused["errors"]] == [(field, code)]
    assert refused["remedy"]


@pytest.mark.parametrize("start", ["earliest", "latest"])
def test_a_continued_table_is_read_again_unless_messages_were_skipped(start: str) -> None:
    then = SourceRecord(format="kafka", options=TOPICS | {"start": start})
    source = SourceRecord(format="iceberg", options={"table": "lake.db.t"}, then=then)
    columns = (ColumnRecord(name="id", type="int"),)
    table = StreamRecord(name="t", columns=columns, kind=StreamKind.TABLE, source=source)
    if start == "earliest":
        check_reread(table, Mode.LIVE)
        return
    with pytest.raises(Conflict) as caught:
        check_reread(table, Mode.LIVE)
    assert caught.value.code == "no-reread"


def test_hosts_of_the_topics_must_be_allowed() -> None:
    then = SourceRecord(format="kafka", options=TOPICS | {"brokers": "example.org:9092"})
    source = SourceRecord(format="iceberg", options={"table": "lake.db.t"}, then=then)
    with pytest.raises(AccessError) as caught:
        check_place(source, ServiceSettings(redis_url="redis://localhost", namespace="n"))
    assert caught.value.field == "source.then.options.brokers"
    record = StreamRecord(name="t", columns=(ColumnRecord(name="id", type="int"),), source=source)
    with pytest.raises(AccessError):
        permitted_source(record, AccessPolicy(), "n")
