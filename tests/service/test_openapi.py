"""Random requests against everything that the OpenAPI document describes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx
import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import checks
from schemathesis.core.result import Ok

from tests.service.conftest import PAIR

if TYPE_CHECKING:
    from tests.support.service import Service


FRAGMENTS = [
    "",
    " ",
    "c",
    "o.order_id",
    "orders",
    "1 hour",
    "unbounded",
    "int",
    "x'",
    PAIR,
    "\0",
    "⋈",
]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 2**63) | st.sampled_from(FRAGMENTS),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(FRAGMENTS), inner, max_size=3)
    ),
    max_leaves=5,
)
NAMES = ["id", "sql", "query", "window", "ttl", "name", "columns", "lateness", "add", "statistics"]
BODIES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=4) | st.builds(
    lambda inner: {"query": inner},
    st.dictionaries(st.sampled_from(["from", "join", "where", "select"]), VALUES),
)


def test_the_document_names_every_route_and_how_it_fails(service: Service) -> None:
    document = service.get("/openapi.json")
    assert set(document["paths"]) == {
        "/healthz",
        "/metrics",
        "/v1/audit",
        "/v1/tokens",
        "/v1/tokens/{ident}",
        "/v1/whoami",
        "/readyz",
        "/v1/epochs",
        "/v1/epochs/current",
        "/v1/epochs/{number}",
        "/v1/epochs/{number}/ruleset",
        "/v1/epochs/{number}/statistics",
        "/v1/streams/{name}/sample",
        "/v1/plans:dry-run",
        "/v1/queries",
        "/v1/queries/{name}",
        "/v1/queries:explain",
        "/v1/queries/{name}/results",
        "/v1/queries/{name}/rows",
        "/v1/settings",
        "/v1/state",
        "/v1/state/stores/{store}",
        "/v1/streams",
        "/v1/streams/{name}",
        "/v1/streams/{name}/rows",
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["tags"], (method, path)
            assert "application/problem+json" in operation["responses"]["default"]["content"]


@pytest.mark.slow
def test_no_request_breaks_the_service(shop: Service) -> None:
    base = str(shop.http.base_url)
    schema = schemathesis.openapi.from_url(f"{base}/openapi.json")
    wanted = [
        checks.not_a_server_error,
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]
    operations = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
    paths = shop.get("/openapi.json")["paths"]
    assert len(operations) == sum(len(methods) for methods in paths.values())

    for operation in operations:

        @settings(max_examples=15, deadline=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def probe(case: Any) -> None:
            case.validate_response(case.call(base_url=base), checks=wanted)

        probe()
    assert httpx.get(f"{base}/readyz").status_code == 200


@pytest.mark.parametrize("path", ["/v1/streams", "/v1/queries", "/v1/plans:dry-run"])
@settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(body=BODIES)
def test_bodies_that_are_almost_right(shop: Service, path: str, body: dict[str, Any]) -> None:
    response = shop.http.post(path, json=body)
    assert response.status_code in (200, 201, 409, 422), response.text
    if response.status_code == 422:
        problem = response.json()
        assert problem["detail"]
        assert problem["remedy"]
