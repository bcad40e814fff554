"""The OpenAPI document as a generator of clients reads it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from openapi_spec_validator import validate

from anabranch_service.app import create_app
from anabranch_service.settings import ServiceSettings


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
