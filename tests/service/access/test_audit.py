"""Tests of the audit log: who changed what, who was refused, and no secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from anabranch_contract.rest.access import Role
from anabranch_service.access import audit as audit_module
from anabranch_service.settings import ServiceSettings
from tests.service.conftest import STREAMS
from tests.support.worlds.access import Guarded, bearer, guarded
from tests.support.worlds.service import Service


@pytest.fixture
def locked(settings: ServiceSettings, tmp_path: Path) -> Iterator[Guarded]:
    with guarded(settings, tmp_path) as found:
        yield found


def test_changes_pushes_and_refusals_are_kept_apart(locked: Guarded) -> None:
    editor, viewer = locked.tokens[Role.EDITOR], locked.tokens[Role.VIEWER]
    done = locked.call("POST", "/v1/streams", editor, json=STREAMS[0])
    assert done.status_code == 201
    assert locked.call("POST", "/v1/streams", editor, json={"name": 1}).status_code == 422
    assert locked.call("GET", "/v1/streams", viewer).status_code == 200
    assert locked.call("DELETE", "/v1/streams/customers", viewer).status_code == 403
    source = {"format": "redis-stream"}
    pushed = {"name": "pushed", "columns": {"k": "bigint"}, "source": source}
    locked.call("POST", "/v1/streams", editor, json=pushed)
    rows = {"rows": [{"k": 1}]}
    worker = locked.tokens[Role.WORKER]
    assert locked.call("POST", "/v1/streams/pushed/rows", worker, json=rows).status_code == 202

    changes = locked.service.get("/v1/audit")["items"]
    newest, first = changes[0], changes[1]
    assert newest["target"] == "/v1/streams"
    assert (first["method"], first["route"], first["status"]) == ("POST", "/v1/streams", 201)
    assert (first["name"], first["role"], first["client"]) == ("a editor", "editor", "127.0.0.1")
    assert first["request"] == done.headers["x-request-id"]
    assert len(changes) == 2 + len(Role)

    refusal = locked.service.get("/v1/audit?kind=refusal")["items"][0]
    assert (refusal["role"], refusal["status"]) == ("viewer", 403)
    assert refusal["target"] == "/v1/streams/customers"
    push = locked.service.get("/v1/audit?kind=push")["items"]
    assert [(p["role"], p["target"]) for p in push] == [("worker", "/v1/streams/pushed/rows")]


def test_pages_go_back_in_time(service: Service) -> None:
    for number in range(7):
        service.post("/v1/streams", {"name": f"s{number}", "columns": {"k": "bigint"}})
    seen, cursor = [], ""
    for _ in range(4):
        page = service.get(f"/v1/audit?limit=2{cursor}")
        seen += [item["request"] for item in page["items"]]
        cursor = f"&cursor={page['next_cursor']}"
    assert page["next_cursor"] is None
    assert len(set(seen)) == len(seen) == 7
    assert service.get("/v1/audit?cursor=0-00") == {"items": [], "next_cursor": None}
    for bad in ("0", "x-y", "1-1)", "99999999999999999-1"):
        service.get(f"/v1/audit?cursor={bad}", 422)


def test_it_is_bounded(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit_module, "KEPT", 10)
    for number in range(300):
        service.post("/v1/streams", {"name": f"s{number}", "columns": {"k": "bigint"}})
    kept = service.redis.xlen(service.keys.audit("change"))
    assert 10 <= int(str(kept)) <= 200


def test_names_and_paths_can_not_forge_entries(
    locked: Guarded, capsys: pytest.CaptureFixture[str]
) -> None:
    forged = "/v1/streams/x%0A2030-01-01%20audit%20role=admin%1b[2J\u2028"
    assert locked.call("DELETE", forged, locked.tokens[Role.VIEWER]).status_code == 403
    entry = locked.service.get("/v1/audit?kind=refusal")["items"][0]
    assert entry["target"].startswith("/v1/streams/x%0A2030")
    assert entry["target"].isascii()
    assert entry["target"].isprintable()
    body = {"name": "a\nb", "role": "admin"}
    assert locked.service.http.post("/v1/tokens", json=body).status_code == 422


def test_a_client_does_not_choose_the_request_id(service: Service) -> None:
    one = service.http.get("/healthz", headers={"X-Request-ID": "mine"})
    assert one.headers["x-request-id"] != "mine"
    assert len(one.headers.get_list("x-request-id")) == 1


def test_without_redis_the_answer_is_no_worse(service: Service) -> None:
    service.redis.set(service.keys.audit("change"), "not a stream")
    service.post("/v1/streams", STREAMS[0])
    answer = service.http.get("/v1/audit")
    assert answer.status_code == 500
    assert answer.json()["code"] == "corrupt-registry"


def test_made_up_methods_are_one_label(service: Service) -> None:
    for method in ("BREW", "PLANT"):
        httpx.request(method, f"{service.http.base_url}/v1/streams", verify=False, timeout=60)
    text = service.http.get("/metrics").text
    assert 'method="other"' in text
    assert "BREW" not in text
    assert bearer(None) == {}
