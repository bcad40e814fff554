"""Tests that pages of other sites, open in a user's browser, can't access a local service."""

from __future__ import annotations

from pathlib import Path

import pytest

from anabranch_service.errors import SettingsError
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import STREAMS
from tests.service.transport.test_problems import problem
from tests.support.worlds.access import guarded
from tests.support.worlds.service import Service, serving


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:8080",
        "127.0.0.1.evil.example",
        "localhost.evil.example",
        "127.0.0.2",
        "localhost@evil.example",
        "evil.example#127.0.0.1",
        "evil.example/127.0.0.1",
        "127.0.0.1:80:80",
        "[::1",
        "2130706433",
        "local host",
    ],
)
@pytest.mark.parametrize("path", ["/", "/v1/streams", "/dashboard/plan/page.js", "/healthz"])
def test_a_name_that_is_not_the_services_is_refused(
    untouched: Service, host: str, path: str
) -> None:
    found = untouched.http.get(path, headers={"Host": host})
    assert problem(found, 421)["code"] == "unknown-host"


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:80", "127.0.0.1:9", "[::1]:1", "[::1]"])
def test_the_services_own_names(untouched: Service, host: str) -> None:
    assert untouched.http.get("/v1/streams", headers={"Host": host}).status_code == 200


def test_more_names_can_be_allowed(settings: ServiceSettings) -> None:
    with serving(settings.changed(allow_hostname="Streams.Example, box")) as service:
        for host, status in (
            ("streams.example", 200),
            ("box:8080", 200),
            ("other.streams.example", 421),
        ):
            assert service.http.get("/healthz", headers={"Host": host}).status_code == status
    with serving(settings.changed(allow_hostname="*")) as service:
        assert service.http.get("/healthz", headers={"Host": "any.example"}).status_code == 200


FOREIGN = [
    {"Origin": "http://evil.example"},
    {"Origin": "null"},
    {"Origin": "http://127.0.0.1:1"},
    {"Origin": "http://localhost"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Origin": ""},
]


@pytest.mark.parametrize("headers", FOREIGN)
@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("POST", "/v1/streams"),
        ("PUT", "/v1/settings"),
        ("PATCH", "/v1/streams/customers"),
        ("DELETE", "/v1/streams/customers"),
        ("POST", "/v1/plans:dry-run"),
    ],
)
def test_a_foreign_page_changes_nothing(
    untouched_shop: Service, method: str, path: str, headers: dict[str, str]
) -> None:
    body = None if method == "DELETE" else STREAMS[1] | {"name": "forged"}
    found = untouched_shop.http.request(method, path, headers=headers, json=body)
    assert problem(found, 403)["code"] == "cross-origin"
    names = {s["name"] for s in untouched_shop.get("/v1/streams")["items"]}
    assert names == {"customers", "orders", "items"}


@pytest.mark.parametrize(
    "kind",
    ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", ""],
)
def test_a_form_that_spells_json_is_no_json(untouched: Service, kind: str) -> None:
    """A page may send these content types without the service's permission."""
    content = b'{"name": "forged", "columns": {"k": "bigint"}}'
    headers = {"Content-Type": kind} if kind else {}
    found = untouched.http.post("/v1/streams", content=content, headers=headers)
    assert problem(found, 415)["code"] == "not-json"
    assert untouched.get("/v1/streams")["items"] == []


def test_no_page_is_given_a_permission(untouched: Service) -> None:
    headers = {
        "Origin": "http://evil.example",
        "Access-Control-Request-Method": "POST",
        "Access-Control-Request-Headers": "authorization",
    }
    found = untouched.http.options("/v1/streams", headers=headers)
    assert found.status_code == 405
    read = untouched.http.get("/v1/streams", headers={"Origin": "http://evil.example"})
    for answer in (found, read):
        assert not [h for h in answer.headers if h.startswith("access-control")]


def test_the_dashboard_may_ask(untouched: Service) -> None:
    own = f"http://127.0.0.1:{untouched.settings.port}"
    headers = {"Origin": own, "Sec-Fetch-Site": "same-origin"}
    found = untouched.http.post("/v1/plans:dry-run", json={}, headers=headers)
    assert found.status_code == 200


def test_behind_a_proxy_a_token_is_enough(settings: ServiceSettings, tmp_path: Path) -> None:
    """The proxy may have another host name than the service."""
    with guarded(settings, tmp_path) as locked:
        headers = {"Origin": "https://streams.example", "Sec-Fetch-Site": "same-origin"}
        found = locked.service.http.post("/v1/plans:dry-run", json={}, headers=headers)
        assert found.status_code == 200


ORIGIN = "https://console.example.org:8443"


def test_pages_of_named_origins_may_use_the_service(settings: ServiceSettings) -> None:
    named = settings.changed(allow_origin=f"https://other.example, {ORIGIN}/")
    with serving(named) as service:
        asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "PATCH"}
        asked["Access-Control-Request-Headers"] = "authorization,if-match"
        preflight = service.http.options("/v1/settings", headers=asked)
        assert preflight.status_code == 200
        assert preflight.headers["Access-Control-Allow-Origin"] == ORIGIN
        page = {"Origin": ORIGIN, "Sec-Fetch-Site": "cross-site"}
        answer = service.http.patch("/v1/settings", json={"memory": 1e6}, headers=page)
        assert answer.status_code == 200
        assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
        assert "ETag" in answer.headers["Access-Control-Expose-Headers"]
        # A refusal can be read by the page, too.
        answer = service.http.post("/v1/queries", json={}, headers=page)
        assert (answer.status_code, "Access-Control-Allow-Origin" in answer.headers) == (422, True)
        page["Origin"] = "https://console.example.org"
        answer = service.http.patch("/v1/settings", json={"memory": 1e6}, headers=page)
        assert answer.status_code == 403
        assert "Access-Control-Allow-Origin" not in answer.headers


@pytest.mark.parametrize("origin", ["*", "null", "console.example.org", "https://a.example/page"])
def test_what_is_no_origin_is_refused(settings: ServiceSettings, origin: str) -> None:
    with pytest.raises(SettingsError, match="allow_origin"):
        settings.changed(allow_origin=origin)
