"""Tests that the operations in ``docs/rest-guide.md`` exist, with accepted bodies."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from anabranch_contract.rest.access import TokenIn
from anabranch_contract.rest.documents import Closed
from anabranch_contract.rest.functions import FunctionIn
from anabranch_contract.rest.planning.plans import DryRunIn, ExplainIn
from anabranch_contract.rest.planning.settings import SettingsIn
from anabranch_contract.rest.queries import QueryBatchIn, QueryIn, QueryPatch
from anabranch_contract.rest.streams import (
    AddedColumnIn,
    RowsIn,
    StreamIn,
    StreamPatch,
    WidenedColumnIn,
)
from anabranch_contract.rest.tables import PreviewIn, SqlIn
from anabranch_service.app import create_app
from anabranch_service.settings import ServiceSettings

REFERENCE = (Path(__file__).parents[3] / "docs" / "rest-guide.md").read_text(encoding="utf-8")

#: Method and path (after ``$API``) of an example with a JSON body, and the body.
EXAMPLE = re.compile(
    r"curl -X (\w+) \$API(/\S+) (?:[^\n]|\\\n)*?-d '(\{.*?\})'$", re.DOTALL | re.MULTILINE
)
BODIES: dict[str, type[Closed]] = {
    "POST /v1/streams": StreamIn,
    "POST /v1/streams:test": StreamIn,
    "POST /v1/streams/flights/columns": AddedColumnIn,
    "PATCH /v1/streams/flights/columns/seats": WidenedColumnIn,
    "POST /v1/streams/flights/rows": RowsIn,
    "PATCH /v1/streams/flights": StreamPatch,
    "POST /v1/queries": QueryIn,
    "POST /v1/queries:batch": QueryBatchIn,
    "PATCH /v1/queries/delays": QueryPatch,
    "POST /v1/queries:explain": ExplainIn,
    "POST /v1/queries:sql": SqlIn,
    "POST /v1/queries:preview": PreviewIn,
    "POST /v1/plans:dry-run": DryRunIn,
    "PATCH /v1/settings": SettingsIn,
    "POST /v1/functions": FunctionIn,
    "POST /v1/tokens": TokenIn,
}


def test_every_section_is_of_an_operation() -> None:
    paths = create_app(ServiceSettings()).openapi()["paths"]
    offered = {f"{method.upper()} {path}" for path, ops in paths.items() for method in ops}
    described = re.findall(r"^### `([A-Z]+ /\S+)`$", REFERENCE, re.MULTILINE)
    assert len(described) > 50
    assert set(described) - offered == set()


@pytest.mark.parametrize("operation", sorted(BODIES))
def test_every_body_in_the_reference_is_accepted(operation: str) -> None:
    examples = {f"{m} {path}": json.loads(body) for m, path, body in EXAMPLE.findall(REFERENCE)}
    assert set(examples) == set(BODIES)
    body = BODIES[operation].model_validate(examples[operation])
    assert body.model_fields_set == set(examples[operation])
