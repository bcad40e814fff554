"""Tests of schemas from a registry: fetched once, waited for, and never from another address."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator

import pytest

from anabranch_contract.connectors.schemas.avro import registered_schema
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.schemas import registry as registries
from anabranch_runtime.sources.schemas.registry import schemas_of
from tests.support.surroundings.registry import Registry

RECORD = {"type": "record", "name": "r", "fields": [{"name": "a", "type": "int"}]}


@pytest.fixture
def registry() -> Iterator[Registry]:
    found = Registry({1: RECORD})
    yield found
    found.close()


def names(options: dict[str, str], number: int) -> list[str] | None:
    schema = schemas_of(options, [number], registered_schema)[number]
    return None if schema is None else [field.name for field in schema.root.fields]


def test_a_schema_is_fetched_once(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    options = {"registry": registry.address}
    assert [names(options, 1) for _ in range(3)] == [["a"]] * 3
    assert names(options, 2) is None
    assert names(options, 2) is None
    assert registry.asked == ["/schemas/ids/1", "/schemas/ids/2"]
    # A missing schema is requested again soon.
    monkeypatch.setattr(registries, "_known", {})
    registry.add(2, RECORD)
    assert names(options, 2) == ["a"]


def test_schemas_refer_to_others(registry: Registry) -> None:
    point = {"type": "record", "name": "x.Point", "fields": [{"name": "p", "type": "int"}]}
    refers = {"name": "x.Point", "subject": "a/b", "version": 3}
    registry.answers["/subjects/a%2Fb/versions/3"] = 200, {"schema": json.dumps(point)}
    using = {"type": "record", "name": "r", "fields": [{"name": "at", "type": "x.Point"}]}
    registry.add(2, using, references=[refers])
    registry.add(3, using)
    registry.add(4, using, references=[{**refers, "version": 4}])
    options = {"registry": registry.address}
    assert names(options, 2) == ["at"]
    assert names(options, 3) is None
    assert names(options, 4) is None


def test_what_is_no_record_in_avro_is_no_schema(registry: Registry) -> None:
    registry.add(2, RECORD, schemaType="JSON")
    registry.add(3, "int")
    registry.answers["/schemas/ids/4"] = 200, {"schema": "no json"}
    options = {"registry": registry.address}
    assert [names(options, number) for number in (2, 3, 4)] == [None] * 3


def test_a_registry_that_does_not_answer_is_waited_for(registry: Registry) -> None:
    options = {"registry": registry.address}
    for status, body in (
        (500, {}),
        (404, {"error": "no such page"}),
        (302, {}),
        (200, {"message": "hello"}),
        (200, []),
    ):
        registry.answers["/schemas/ids/7"] = status, body
        with pytest.raises(SourceError, match="schema registry at http") as refused:
            schemas_of(options, [7], registered_schema)
        assert refused.value.code == "no-server"
    registry.add(7, RECORD)
    assert names(options, 7) == ["a"]
    registry.close()
    assert names(options, 7) == ["a"]
    with pytest.raises(SourceError, match="refused"):
        schemas_of(options, [8], registered_schema)


def test_a_login(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    registry.login = "Basic " + base64.b64encode(b"ann:word").decode()
    options = {
        "registry": registry.address, "registry_user": "ann",
        "registry_password": "${ANABRANCH_SOURCE_REGISTRY}",
    }  # fmt: skip
    monkeypatch.setenv("ANABRANCH_SOURCE_REGISTRY", "wrong")
    with pytest.raises(SourceError, match="status 401"):
        schemas_of(options, [1], registered_schema)
    monkeypatch.setenv("ANABRANCH_SOURCE_REGISTRY", "word")
    assert names(options, 1) == ["a"]
