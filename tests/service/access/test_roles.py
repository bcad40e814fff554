"""Tests of every REST route under every role: who is admitted, and that no route is missing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from fastapi import APIRouter
from starlette.routing import Mount

from anabranch_contract.rest.access import Role
from anabranch_service.access.guarded import GuardedRoute, guarded_router
from anabranch_service.access.roles import ADMITTED, Need
from anabranch_service.app import create_app
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.support.worlds.access import Guarded, guarded

#: Route -> the required role (or none), written out: a changed route has to be changed here, too.
MATRIX = {
    "GET /": "",
    "GET /openapi.json": "",
    "GET /dashboard": "",
    "GET /dashboard/": "",
    "GET /dashboard/{page:path}/": "",
    "GET /dashboard/batches": "",
    "GET /dashboard/epochs": "",
    "GET /dashboard/explain": "",
    "GET /dashboard/health": "",
    "GET /dashboard/load": "",
    "GET /dashboard/measured": "",
    "GET /dashboard/plan": "",
    "GET /dashboard/queries": "",
    "GET /docs": "",
    "GET /docs/": "",
    "GET /dashboard/settings": "",
    "GET /dashboard/query/{name}": "",
    "GET /dashboard/state": "",
    "GET /dashboard/stream/{name}": "",
    "GET /dashboard/streams": "",
    "GET /dashboard/what-if": "",
    "GET /healthz": "",
    "GET /readyz": "viewer editor admin worker",
    "GET /metrics": "viewer editor admin worker",
    "GET /v1/health": "viewer editor admin",
    "GET /v1/whoami": "viewer editor admin worker",
    "GET /v1/leader": "viewer editor admin worker",
    "GET /v1/streams": "viewer editor admin",
    "GET /v1/streams/{name}": "viewer editor admin",
    "GET /v1/streams/{name}/sample": "viewer editor admin",
    "POST /v1/streams": "editor admin",
    "POST /v1/streams:test": "editor admin",
    "PATCH /v1/streams/{name}": "editor admin",
    "DELETE /v1/streams/{name}": "editor admin",
    "POST /v1/streams/{name}/rows": "editor admin worker",
    "POST /v1/streams/{name}:reread": "editor admin",
    "POST /v1/streams/{name}/columns": "editor admin",
    "PATCH /v1/streams/{name}/columns/{column}": "editor admin",
    "DELETE /v1/streams/{name}/columns/{column}": "editor admin",
    "GET /v1/queries": "viewer editor admin",
    "GET /v1/queries/{name}": "viewer editor admin",
    "GET /v1/queries/{name}/plan": "viewer editor admin",
    "GET /v1/queries/{name}/results": "viewer editor admin",
    "GET /v1/queries/{name}/rows": "viewer editor admin",
    "GET /v1/queries/{name}/table": "viewer editor admin",
    "GET /v1/queries/{name}/table/rows": "viewer editor admin",
    "POST /v1/queries:sql": "viewer editor admin",
    "POST /v1/queries:preview": "viewer editor admin",
    "POST /v1/queries": "editor admin",
    "POST /v1/queries:batch": "editor admin",
    "POST /v1/queries:family": "editor admin",
    "GET /v1/families": "viewer editor admin",
    "GET /v1/families/{family}": "viewer editor admin",
    "GET /v1/queries/{name}/runs": "viewer editor admin",
    "PUT /v1/queries/{name}": "editor admin",
    "POST /v1/queries/{name}:pause": "editor admin",
    "POST /v1/queries/{name}:resume": "editor admin",
    "PATCH /v1/queries/{name}": "editor admin",
    "DELETE /v1/queries/{name}": "editor admin",
    "POST /v1/queries:explain": "editor admin",
    "POST /v1/plans:dry-run": "editor admin",
    "GET /v1/functions": "viewer editor admin",
    "GET /v1/functions/{name}": "viewer editor admin",
    "POST /v1/functions": "editor admin",
    "DELETE /v1/functions/{name}": "editor admin",
    "GET /v1/epochs": "viewer editor admin",
    "GET /v1/plan": "viewer editor admin",
    "GET /v1/plan/names": "viewer editor admin",
    "GET /v1/plan/held": "viewer editor admin",
    "POST /v1/plan/held:approve": "admin",
    "POST /v1/plan/held:refuse": "admin",
    "GET /v1/epochs/current": "viewer editor admin",
    "GET /v1/epochs/{number}": "viewer editor admin",
    "GET /v1/epochs/{number}/diff": "viewer editor admin",
    "GET /v1/epochs/{number}/ruleset": "viewer editor admin",
    "GET /v1/epochs/{number}/revisions": "viewer editor admin",
    "GET /v1/epochs/{number}/statistics": "viewer editor admin",
    "GET /v1/batches": "viewer editor admin",
    "GET /v1/profile": "viewer editor admin",
    "GET /v1/series": "viewer editor admin",
    "GET /v1/history": "viewer editor admin",
    "GET /v1/state": "viewer editor admin",
    "GET /v1/state/stores/{store:path}": "viewer editor admin",
    "GET /v1/settings": "viewer editor admin",
    "PUT /v1/settings": "admin",
    "PATCH /v1/settings": "admin",
    "GET /v1/tokens": "admin",
    "POST /v1/tokens": "admin",
    "DELETE /v1/tokens/{ident}": "admin",
    "GET /v1/audit": "admin",
}
VALUES = {
    "{name}": "nobody",
    "{page:path}": "queries",
    "{number}": "0",
    "{store:path}": "nothing/1",
    "{ident}": "0123456789ab",
    "{family}": "0123456789ab",
}
BODIES: dict[str, dict[str, Any]] = {
    "POST /v1/streams": STREAMS[0],
    "POST /v1/streams:test": STREAMS[0],
    "POST /v1/queries": {"id": "pair", "sql": PAIR},
    "POST /v1/queries:batch": {"queries": [{"id": "pair", "sql": PAIR}]},
    "POST /v1/queries:family": {
        "id": "some",
        "sql": f"{PAIR} WHERE o.total > :least",
        "parameters": {"a": {"least": 1}},
    },
    "POST /v1/queries:explain": {"sql": PAIR},
    "PATCH /v1/streams/{name}": {"keep_late": True},
    "PATCH /v1/queries/{name}": {"priority": 1},
    "PUT /v1/queries/{name}": {"sql": PAIR},
    "POST /v1/streams/{name}/rows": {"rows": [{"customer_id": 1}]},
    "POST /v1/tokens": {"name": "another", "role": "viewer"},
}


def operations() -> dict[str, GuardedRoute]:
    """Return all operations of the application; fails if a route declares no role."""
    found: dict[str, GuardedRoute] = {}

    def collect(routes: list[Any]) -> None:
        for route in routes:
            if isinstance(route, Mount):
                # Public files.
                assert route.path in ("/dashboard", "/dashboard/swagger")
            elif hasattr(route, "original_router"):
                collect(route.original_router.routes)
            else:
                assert isinstance(route, GuardedRoute), route
                for method in route.methods or ():
                    found[f"{method} {route.path}"] = route

    collect(create_app(ServiceSettings()).routes)
    return found


def test_the_matrix_is_closed() -> None:
    found = operations()
    assert set(found) == set(MATRIX)
    for name, route in found.items():
        admitted = "" if route.need is Need.NOTHING else " ".join(ADMITTED_IN_ORDER[route.need])
        assert admitted == MATRIX[name], name


ADMITTED_IN_ORDER = {need: [r for r in Role if r in ADMITTED[need]] for need in Need}


def test_a_route_that_declares_nothing_can_not_be_made() -> None:
    router = guarded_router(tag="test")

    async def forgotten() -> None: ...

    with pytest.raises(TypeError, match="forgotten declares no need"):
        router.get("/forgotten")(forgotten)
    assert isinstance(router, APIRouter)


def test_the_document_says_who_may_do_what() -> None:
    document = create_app(ServiceSettings()).openapi()
    assert document["components"]["securitySchemes"]["bearer"]["scheme"] == "bearer"
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            name = f"{method.upper()} {path}".replace("{store}", "{store:path}")
            assert operation.get("x-roles", []) == MATRIX[name].split(), name
            assert operation["security"] == ([{"bearer": []}] if MATRIX[name] else []), name


@pytest.fixture(scope="module")
def locked(redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    settings = ServiceSettings().changed(redis_url=redis, namespace="roles", poll_seconds=0.005)
    with guarded(settings, tmp_path_factory.mktemp("roles")) as found:
        yield found


@pytest.mark.parametrize("operation", sorted(MATRIX))
def test_every_route_under_every_role(locked: Guarded, operation: str) -> None:
    method, template = operation.split(" ")
    path = template
    for name, value in VALUES.items():
        path = path.replace(name, value)
    body = None
    if method in ("POST", "PUT", "PATCH"):
        body = BODIES.get(operation, {})
    open_to = MATRIX[operation].split()

    def status(token: str | None) -> int:
        # A tail would never end; here none begins, as the query does not exist.
        return locked.call(method, path, token, json=body, follow_redirects=True).status_code

    for role, token in locked.tokens.items():
        found = status(token)
        if not open_to or role in open_to:
            # 503: /readyz if the event loop of a busy machine is late.
            assert found not in (401, 403, 429, 500), (role, found)
        else:
            assert found == 403, role
    some = next(iter(locked.tokens.values()))
    unknown = f"anb_{12 * '0'}_{64 * '0'}"
    for bad in (None, "x", unknown, some[:-1], some[:-1] + "x", some + "0", "viewer"):
        found = status(bad)
        if open_to:
            assert found in (401, 429), bad
        else:
            assert found == 200


def test_no_role_is_left_out_of_the_matrix() -> None:
    assert {r for roles in MATRIX.values() for r in roles.split()} == set(Role)
