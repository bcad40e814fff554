"""Tests of the OpenAPI document as generators of clients read it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openapi_spec_validator import validate

from anabranch_service.app import create_app
from anabranch_service.settings import ServiceSettings
from scripts.reference.rest import meaning


def references(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        if isinstance(value.get("$ref"), str):
            yield value["$ref"]
        for inner in value.values():
            yield from references(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from references(inner)


def test_the_document_is_valid_and_every_reference_in_it_resolves() -> None:
    document = create_app(ServiceSettings()).openapi()
    validate(document)
    found = set(references(document))
    assert "#/components/schemas/Problem" in found
    for reference in found:
        assert reference.startswith("#/components/schemas/"), reference
        assert reference.rpartition("/")[2] in document["components"]["schemas"], reference


def test_every_operation_has_an_id_of_its_own() -> None:
    document = create_app(ServiceSettings()).openapi()
    ids = [o["operationId"] for ops in document["paths"].values() for o in ops.values()]
    assert len(set(ids)) == len(ids)


def test_every_field_and_every_parameter_has_a_meaning() -> None:
    document = create_app(ServiceSettings()).openapi()
    found = [
        (name, field, meaning(value))
        for name, schema in document["components"]["schemas"].items()
        for field, value in schema.get("properties", {}).items()
    ]
    found += [
        (f"{method} {path}", parameter["name"], parameter.get("description", ""))
        for path, operations in document["paths"].items()
        for method, operation in operations.items()
        for parameter in operation.get("parameters", ())
    ]
    assert {(owner, name) for owner, name, text in found if not text} == set()
    # Each text has one line, without docstring markup.
    odd = [text for _, _, text in found if "\n" in text or "``" in text or ":`" in text]
    assert odd == []
    assert ("RuntimeOut", "state_bytes", "Size of the stored rows, in bytes.") in found
    assert ("StoreDetailOut", "partitions", "Number of partitions.") in found
