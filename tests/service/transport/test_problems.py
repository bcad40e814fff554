"""Tests that every error is answered with problem details (RFC 9457)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.support.worlds.service import Service

if TYPE_CHECKING:
    import httpx


def problem(response: httpx.Response, status: int) -> dict[str, object]:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert isinstance(document, dict)
    assert document["status"] == status
    assert document["type"] == f"urn:anabranch:problem:{document['code']}"
    assert document["title"]
    assert document["detail"]
    assert document["instance"] == response.request.url.path
    return document


def test_unknown_paths_and_methods(untouched: Service) -> None:
    assert problem(untouched.http.get("/v1/nothing"), 404)["code"] == "not-found"
    refused = untouched.http.put("/v1/streams", json={})
    assert problem(refused, 405)["remedy"]
    assert "POST" in refused.headers["allow"]
    assert problem(untouched.http.get("/dashboard/nothing.js"), 404)["code"] == "not-found"


@pytest.mark.parametrize("body", [b"{", b"", b"\xff\xfe", b'{"name": }'])
def test_bodies_that_are_no_json(untouched: Service, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    response = untouched.http.post("/v1/streams", content=body, headers=headers)
    document = problem(response, 422 if body == b"" else 400)
    assert document["remedy"]


@pytest.mark.parametrize("body", ["[]", "5", "null", '"text"', '{"name": {}}'])
def test_bodies_of_another_shape(untouched: Service, body: str) -> None:
    headers = {"content-type": "application/json"}
    response = untouched.http.post("/v1/queries", content=body, headers=headers)
    document = problem(response, 422)
    assert document["errors"]


def test_text_that_nobody_can_store(untouched: Service) -> None:
    headers = {"content-type": "application/json"}
    for body in (r'{"sql": "\ud800"}', r'{"query": {"from": "\ud800"}}', r'{"\ud800": 1}'):
        response = untouched.http.post("/v1/queries", content=body, headers=headers)
        assert problem(response, 422)["errors"]


def test_a_body_that_is_nested_too_deeply(untouched: Service) -> None:
    body = '{"query": {"from": ' + "[" * 100_000 + "]" * 100_000 + "}}"
    headers = {"content-type": "application/json"}
    response = untouched.http.post("/v1/queries", content=body, headers=headers)
    assert response.status_code in (400, 422)
    assert problem(response, response.status_code)
    assert untouched.get("/healthz")["status"] == "ok"


def test_every_problem_names_all_fields(untouched: Service) -> None:
    body = {"name": "a b", "columns": [{"name": "x"}], "lateness": 5}
    document = problem(untouched.http.post("/v1/streams", json=body), 422)
    errors = document["errors"]
    assert isinstance(errors, list)
    assert {"name", "lateness"} <= {e["field"] for e in errors}
    assert f"and {len(errors) - 1} more" in str(document["detail"])


@pytest.mark.parametrize(
    ("path", "allowed"),
    [
        ("/v1/queries", "GET, HEAD, POST"),
        ("/v1/queries/pair", "DELETE, GET, HEAD, PATCH, PUT"),
        ("/v1/queries/pair:pause", "POST"),
        ("/v1/settings", "GET, HEAD, PATCH, PUT"),
        ("/v1/queries:explain", "POST"),
    ],
)
def test_a_wrong_method_is_answered_with_all_right_ones(
    untouched: Service, path: str, allowed: str
) -> None:
    for method in ("OPTIONS", "TRACE"):
        refused = untouched.http.request(method, path, content=b"{}")
        assert (refused.status_code, refused.headers["Allow"]) == (405, allowed)


@pytest.mark.parametrize(
    ("path", "name", "remedy"),
    [
        (
            "/v1/queries?limits=3",
            "limits",
            "there are cursor, detail, find, limit, owner, parts, status, stream, tag",
        ),
        ("/v1/streams?limits=3", "limits", "there are cursor, limit"),
        ("/v1/leader?limit=3", "limit", "there is none"),
        ("/v1/settings?a=1&b=2", "a", "there is none"),
    ],
)
def test_a_parameter_without_effect_is_refused(
    untouched: Service, path: str, name: str, remedy: str
) -> None:
    found = problem(untouched.http.get(path), 422)
    assert found["code"] == "unknown-parameter"
    assert name in str(found["detail"])
    assert remedy in str(found["remedy"])


def test_long_answers_are_compressed_for_those_who_take_it(untouched: Service) -> None:
    plain = untouched.http.get("/openapi.json", headers={"Accept-Encoding": "identity"})
    packed = untouched.http.get("/openapi.json", headers={"Accept-Encoding": "gzip"})
    assert plain.json() == packed.json()
    assert packed.headers["Content-Encoding"] == "gzip"
    assert int(packed.headers["Content-Length"]) < int(plain.headers["Content-Length"]) / 4
    assert "Content-Encoding" not in untouched.http.get("/healthz").headers


@pytest.mark.parametrize(
    ("route", "body", "meant"),
    [
        ("/v1/queries", {"sql": "SELECT 1", "windw": "1 hour"}, "window"),
        ("/v1/queries", {"sql": "SELECT 1", "sink": {"fromat": "count"}}, "format"),
        ("/v1/queries:batch", {"queries": [{"sql": "SELECT 1", "windw": "1 hour"}]}, "window"),
        ("/v1/streams", {"name": "s", "columns": {"k": "int"}, "event_tme": "k"}, "event_time"),
        ("/v1/queries", {"sql": "SELECT 1", "zzz": 1}, None),
    ],
)
def test_an_unknown_field_is_answered_with_the_nearest_one(
    untouched: Service, route: str, body: dict[str, object], meant: str | None
) -> None:
    document = problem(untouched.http.post(route, json=body), 422)
    assert "there is no such field" in str(document["detail"])
    near = f"did you mean {meant!r}?"
    assert str(document["remedy"]).startswith("correct the fields" if meant is None else near)


def test_an_unknown_name_is_answered_with_the_nearest_one_or_its_kind(service: Service) -> None:
    service.post("/v1/streams", {"name": "orders", "columns": {"id": "bigint"}})
    service.post("/v1/queries", {"id": "large", "sql": "SELECT id FROM orders WHERE id > 9"})

    def remedy(path: str) -> str:
        return str(problem(service.http.get(path), 404)["remedy"])

    assert remedy("/v1/queries/lrge") == "did you mean 'large'? GET /v1/queries lists them"
    assert remedy("/v1/streams/order/sample").startswith("did you mean 'orders'?")
    assert remedy("/v1/queries/orders").startswith("it is the name of a stream, and tables are of")
    assert remedy("/v1/streams/large") == "it is the name of a query; GET /v1/streams lists them"
    assert remedy("/v1/queries/zzz") == "GET /v1/queries lists them"
