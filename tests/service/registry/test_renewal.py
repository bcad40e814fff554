"""How Spark reads a source is kept with the stream, and added to records of earlier releases."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from anabranch_contract.connectors.spark_source import from_json
from anabranch_contract.errors import StreamError
from anabranch_planner.sources.spark_source import spark_source
from anabranch_service.registry.records import ColumnRecord, SourceRecord, StreamRecord
from tests.support.worlds.records import put
from tests.support.worlds.service import eventually, serving

if TYPE_CHECKING:
    from anabranch_service.settings import Settings
    from tests.support.worlds.service import Service


def kept(service: Service, name: str) -> dict[str, Any]:
    """The record as the runtime reads it."""
    text = service.redis.hget(service.keys.streams, name)
    assert isinstance(text, str)
    found: dict[str, Any] = json.loads(text)
    return found


def test_a_registration_says_how_spark_reads_it(service: Service) -> None:
    columns = {"k": "bigint", "v": "bigint"}
    source = {"format": "rate", "options": {"column.k": "value + 1", "column.v": "value"}}
    service.post("/v1/streams", {"name": "s", "columns": columns, "source": source})
    reading = kept(service, "s")["reading"]
    record = StreamRecord.model_validate(kept(service, "s"))
    options = record.source.options
    assert from_json(reading) == spark_source("rate", options, record.to_stream().columns)
    service.post("/v1/streams", {"name": "own", "columns": columns})
    assert kept(service, "own")["reading"] is None
    assert "reading" not in service.get("/v1/streams/s")


def test_records_of_an_earlier_release_are_renewed(settings: Settings) -> None:
    def record(name: str, format: str, **options: str) -> StreamRecord:
        given = {key.replace("__", "."): text for key, text in options.items()}
        source = SourceRecord(format=format, options=given)
        return StreamRecord(
            name=name, columns=(ColumnRecord(name="k", type="bigint"),), source=source
        )

    records = [
        record("understood", "rate", column__k="value"),
        record("refused", "rate", column__k="reflect('java.lang.System', 'exit', 0)"),
        record("own", "redis-stream"),
    ]
    with serving(settings) as service:
        for old in records:
            text = old.model_dump_json(exclude={"reading"})
            put(service.redis, service.keys, "streams", old.name, text)
    with serving(settings) as service:
        eventually(lambda: bool(kept(service, "refused").get("reading")), "the service renews them")
        eventually(lambda: bool(kept(service, "understood").get("reading")), "all of them")
        assert from_json(kept(service, "understood")["reading"]).schema is None
        with pytest.raises(StreamError) as caught:
            from_json(kept(service, "refused")["reading"])
        assert caught.value.field == "source.options.column.k"
        assert kept(service, "own").get("reading") is None
