"""Tests of Avro schemas: names, namespaces, and invalid texts."""

from __future__ import annotations

import json
from typing import Any

import pytest

from anabranch_contract.connectors.schemas.avro import parse_schema, record_schema
from anabranch_contract.errors import StreamError


def record(*fields: Any, **more: Any) -> dict[str, Any]:
    named = [{"name": f"f{i}", "type": kind} for i, kind in enumerate(fields)]
    return {"type": "record", "name": "r", "fields": named, **more}


def test_names_are_resolved_in_their_namespace() -> None:
    inner = {"type": "fixed", "name": "F", "size": 2}
    other = {"type": "enum", "name": "y.E", "symbols": ["A"]}
    schema = parse_schema(json.dumps(record(inner, "F", other, "y.E", "r", namespace="x")))
    assert sorted(schema.named) == ["x.F", "x.r", "y.E"]
    kinds = [schema.resolved(field.type).kind for field in schema.root.fields]
    assert kinds == ["fixed", "fixed", "enum", "enum", "record"]


def test_logical_types() -> None:
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 1}
    found = [field.type for field in parse_schema(json.dumps(record(
        decimal, {**decimal, "scale": 5}, {"type": {"type": "int", "logicalType": "date"}},
    ))).root.fields]  # fmt: skip
    assert [(t.logical, t.precision, t.scale) for t in found] == [
        ("decimal", 4, 1), ("decimal", 0, 0), ("date", 0, 0)
    ]  # fmt: skip


def deep() -> Any:
    found: Any = "int"
    for _ in range(100):
        found = {"type": "array", "items": found}
    return found


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (None, "not a type"),
        (7, "not a type"),
        ("int", "not record"),
        (["null", "int"], "not record"),
        ([], "union is empty"),
        (record([["null"]]), "has a union in it"),
        (record("unknown"), "'unknown' is not defined"),
        (record({"type": "fixed", "name": "F"}), "no size"),
        (record({"type": "enum", "name": "F", "symbols": "A"}), "no symbols"),
        (record({"type": "array"}), "not a type"),
        (record({"type": "fixed", "name": "r", "size": 1}), "defined twice"),
        ({"type": "record", "name": "r"}, "no fields"),
        ({"type": "record", "name": "a b", "fields": []}, "not a name"),
        ({"type": "record", "name": "r", "fields": [7]}, "not a field's name"),
        ({**record("int"), "fields": record("int")["fields"] * 2}, "a field twice"),
        (record(deep()), "nested too deep"),
    ],
)  # fmt: skip
def test_texts_that_are_no_schema(schema: Any, why: str) -> None:
    with pytest.raises(StreamError, match=why) as refused:
        record_schema(json.dumps(schema))
    assert refused.value.code == "bad-schema"


def test_text_that_is_no_json() -> None:
    for text in ("", "{", "[" * 100_000):
        with pytest.raises(StreamError, match="not JSON"):
            record_schema(text)
