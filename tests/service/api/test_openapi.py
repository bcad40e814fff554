"""Tests of random requests for everything in the OpenAPI document."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from anabranch_contract.rest.access import Role
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.support.scenarios.seeds import mostly_slow
from tests.support.worlds.access import Guarded, bearer, guarded
from tests.support.worlds.service import Service

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
        "/v1/batches",
        "/v1/epochs",
        "/v1/epochs/current",
        "/v1/epochs/{number}",
        "/v1/epochs/{number}/diff",
        "/v1/epochs/{number}/ruleset",
        "/v1/epochs/{number}/revisions",
        "/v1/epochs/{number}/statistics",
        "/v1/streams/{name}/sample",
        "/v1/leader",
        "/v1/health",
        "/v1/history",
        "/v1/plan",
        "/v1/plan/held",
        "/v1/plan/held:approve",
        "/v1/plan/held:refuse",
        "/v1/plans:dry-run",
        "/v1/queries",
        "/v1/queries/{name}",
        "/v1/queries:batch",
        "/v1/queries:family",
        "/v1/functions",
        "/v1/functions/{name}",
        "/v1/families",
        "/v1/families/{family}",
        "/v1/queries:explain",
        "/v1/queries/{name}/plan",
        "/v1/queries/{name}/results",
        "/v1/queries/{name}/rows",
        "/v1/queries/{name}/table",
        "/v1/queries/{name}/table/rows",
        "/v1/queries:sql",
        "/v1/queries:preview",
        "/v1/queries/{name}/runs",
        "/v1/queries/{name}:pause",
        "/v1/queries/{name}:resume",
        "/v1/plan/names",
        "/v1/profile",
        "/v1/series",
        "/v1/settings",
        "/v1/state",
        "/v1/state/stores/{store}",
        "/v1/streams",
        "/v1/streams:test",
        "/v1/streams/{name}",
        "/v1/streams/{name}/columns",
        "/v1/streams/{name}/columns/{column}",
        "/v1/streams/{name}/rows",
        "/v1/streams/{name}:reread",
    }
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            assert operation["tags"], (method, path)
            assert "application/problem+json" in operation["responses"]["default"]["content"]


#: Schema of a request -> where its examples are sent, in this order.
EXAMPLES = {
    "StreamIn": "POST /v1/streams",
    "RowsIn": "POST /v1/streams/flights/rows",
    "AddedColumnIn": "POST /v1/streams/flights/columns",
    "WidenedColumnIn": "PATCH /v1/streams/flights/columns/price",
    "QueryIn": "POST /v1/queries",
    "QueryBatchIn": "POST /v1/queries:batch",
    "FamilyIn": "POST /v1/queries:family",
    "SqlIn": "POST /v1/queries:sql",
    "PreviewIn": "POST /v1/queries:preview",
    "QueryPatch": "PATCH /v1/queries/delays",
    "ExplainIn": "POST /v1/queries:explain",
    "DryRunIn": "POST /v1/plans:dry-run",
    "FunctionIn": "POST /v1/functions",
    "TokenIn": "POST /v1/tokens",
}


def test_examples_of_the_document_are_taken_as_they_are(
    settings: ServiceSettings, tmp_path: Path
) -> None:
    module = tmp_path / "prices.py"
    module.write_text("def discounted(price, code): return price")
    access = replace(settings.access, functions=(str(module),))
    with guarded(settings.changed(access=access), tmp_path) as locked:
        headers = bearer(locked.tokens[Role.ADMIN])
        document = locked.service.get("/openapi.json")
        schemas = document["components"]["schemas"]
        assert {name for name, one in schemas.items() if one.get("examples")} == set(EXAMPLES)
        for name, operation in EXAMPLES.items():
            method, path = operation.split()
            for body in schemas[name]["examples"]:
                answer = httpx.request(
                    method, f"{locked.url}{path}", json=body, headers=headers, timeout=60
                )
                assert answer.is_success, (name, answer.text)


#: Documented error codes of 503, for a service whose Redis answers.
BUSY = {
    *("not-ready", "too-many-tails", "too-many-tables", "too-many-bodies"),
    *("source-too-slow", "files-replaced"),
}
ROLES = (Role.ADMIN, None, *(role for role in Role if role is not Role.ADMIN))


@pytest.mark.parametrize("role", mostly_slow(ROLES))
def test_no_request_breaks_the_service(
    settings: ServiceSettings, tmp_path: Path, role: Role | None
) -> None:
    """Requests are made from the document for every operation, under every role and none."""
    assert fuzz(settings, tmp_path, role, each=1) >= 50


@pytest.mark.slow
@pytest.mark.parametrize("role", ROLES)
def test_no_request_of_thousands_breaks_the_service(
    settings: ServiceSettings, tmp_path: Path, role: Role | None
) -> None:
    """At least 5,000 requests with all roles together."""
    assert fuzz(settings, tmp_path, role, each=50) >= 1000


def fuzz(config: ServiceSettings, folder: Path, role: Role | None, *, each: int) -> int:
    """Make random requests for every operation, more if it has a body; return their number."""
    # Imported here, as in `probe`, since it would slow every process that collects tests.
    import schemathesis
    from schemathesis.core.result import Ok

    with guarded(config, folder) as locked:
        for stream in STREAMS:
            locked.service.post("/v1/streams", stream)
        locked.service.post("/v1/queries", {"id": "pair", "sql": PAIR})
        locked.service.plan(-1)
        document = locked.service.get("/openapi.json")
        schema = schemathesis.openapi.from_dict(document)
        found = [result.ok() for result in schema.get_all_operations() if isinstance(result, Ok)]
        assert len(found) == sum(len(methods) for methods in document["paths"].values())
        cases = 0
        for operation in found:
            described = document["paths"][operation.path][operation.method.lower()]
            most = each * (3 if "requestBody" in described else 1)
            cases += probe(locked, operation, role, described.get("x-roles", []), most)
        ready = locked.service.http.get("/healthz")
        assert ready.status_code == 200
    return cases


def probe(locked: Guarded, operation: Any, role: Role | None, roles: list[str], most: int) -> int:
    """Make ``most`` requests for one operation."""
    from schemathesis import checks

    headers = bearer(None if role is None else locked.tokens[role])
    cases = 0
    conforms = [
        checks.status_code_conformance,
        checks.content_type_conformance,
        checks.response_schema_conformance,
    ]

    @hypothesis_settings(max_examples=most, suppress_health_check=list(HealthCheck))
    @given(case=operation.as_strategy())
    def ask(case: Any) -> None:
        nonlocal cases
        cases += 1
        answer = case.call(base_url=locked.url, headers=headers, timeout=60)
        status = answer.status_code
        busy = status == 503 and answer.json()["code"] in BUSY
        assert status < 500 or busy, answer.text
        if not roles or role in roles:
            assert status not in (401, 403, 429), answer.text
        else:
            assert status in ((401, 429) if role is None else (403,)), answer.text
        case.validate_response(answer, checks=conforms)

    ask()
    return cases


@pytest.mark.parametrize("path", ["/v1/streams", "/v1/queries", "/v1/plans:dry-run"])
@hypothesis_settings(max_examples=40, suppress_health_check=list(HealthCheck))
@given(body=BODIES)
def test_bodies_that_are_almost_right(shop: Service, path: str, body: dict[str, Any]) -> None:
    response = shop.http.post(path, json=body)
    assert response.status_code in (200, 201, 409, 422), response.text
    if response.status_code == 422:
        problem = response.json()
        assert problem["detail"]
        assert problem["remedy"]
