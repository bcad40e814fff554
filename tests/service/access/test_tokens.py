"""Tests of access tokens: shown once, stored as digests, refused when revoked or expired."""

from __future__ import annotations

import json
import stat
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from anabranch_contract.protocol.keys import Keys
from anabranch_contract.rest.access import Role
from anabranch_service.access import tokens as tokens_module
from anabranch_service.access.first_token import read_file
from anabranch_service.access.gate import BURST, MOST_ADDRESSES, FailureLimiter
from anabranch_service.access.tokens import digest_of, is_same, make_token
from anabranch_service.errors import SettingsError
from anabranch_service.settings import Auth, ServiceSettings
from tests.service.conftest import PAIR, STREAMS
from tests.service.transport.test_problems import problem
from tests.support.worlds.access import Guarded, bearer, guarded
from tests.support.worlds.service import Service, eventually, serving


@pytest.fixture
def locked(settings: ServiceSettings, tmp_path: Path) -> Iterator[Guarded]:
    with guarded(settings, tmp_path) as found:
        yield found


def test_a_secret_is_shown_once_and_kept_nowhere(locked: Guarded, tmp_path: Path) -> None:
    made = locked.create("editor", ttl="1 hour")
    secret = made["token"]
    assert secret.startswith(f"anb_{made['id']}_")
    listed = locked.service.http.get("/v1/tokens")
    assert made["id"] in listed.text
    assert all("token" not in item and "digest" not in item for item in listed.json()["items"])
    redis = locked.service.redis
    kept = redis.hget(locked.service.keys.tokens, made["id"])
    assert json.loads(str(kept))["digest"] == digest_of(secret)
    everything = [listed.text, locked.service.http.get("/v1/audit").text]
    for key in redis.scan_iter(match=f"{locked.service.settings.namespace}:*"):
        kind = str(redis.type(key))
        found = redis.xrange(key) if kind == "stream" else ""
        everything.append(str(redis.hgetall(key) if kind == "hash" else found))
    assert all(secret.rpartition("_")[2] not in text for text in everything)
    file = tmp_path / "admin.token"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_revoked_and_expired_tokens_are_refused(settings: ServiceSettings, tmp_path: Path) -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)

    def clock() -> datetime:
        return moment

    with guarded(settings, tmp_path, clock=clock) as locked:
        short = locked.create("viewer", ttl="10 minutes")
        assert locked.call("GET", "/v1/streams", short["token"]).status_code == 200
        moment += timedelta(minutes=9, seconds=59)
        assert locked.call("GET", "/v1/streams", short["token"]).status_code == 200
        moment += timedelta(seconds=1)
        refused = problem(locked.call("GET", "/v1/streams", short["token"]), 401)
        assert refused["code"] == "bad-token"
        assert refused["remedy"]

        revoked = locked.create("editor")
        first = locked.service.call("DELETE", f"/v1/tokens/{revoked['id']}", 200)
        again = locked.service.call("DELETE", f"/v1/tokens/{revoked['id']}", 200)
        assert first == again
        assert not first["usable"]
        assert locked.call("POST", "/v1/streams", revoked["token"]).status_code == 401
        assert (
            locked.call("DELETE", "/v1/tokens/0123456789ab", locked.tokens[Role.ADMIN]).json()[
                "code"
            ]
            == "unknown-token"
        )


def test_the_last_use_is_known_to_about_a_minute(settings: ServiceSettings, tmp_path: Path) -> None:
    moment = datetime(2030, 1, 1, tzinfo=UTC)
    with guarded(settings, tmp_path, clock=lambda: moment) as locked:
        made = locked.create("viewer")

        def last() -> str | None:
            items = locked.service.get("/v1/tokens")["items"]
            found = next(i for i in items if i["id"] == made["id"])["last_used_at"]
            return None if found is None else str(found)

        assert last() is None
        locked.call("GET", "/v1/streams", made["token"])
        assert last() == "2030-01-01T00:00:00Z"
        moment += timedelta(seconds=59)
        locked.call("GET", "/v1/streams", made["token"])
        assert last() == "2030-01-01T00:00:00Z"
        moment += timedelta(seconds=1)
        locked.call("GET", "/v1/streams", made["token"])
        assert last() == "2030-01-01T00:01:00Z"


def test_the_last_administrator_stays(locked: Guarded) -> None:
    admins = [t for t in locked.service.get("/v1/tokens")["items"] if t["role"] == "admin"]
    assert len(admins) == 2
    locked.service.call("DELETE", f"/v1/tokens/{admins[1]['id']}", 200)
    refused = locked.service.call("DELETE", f"/v1/tokens/{admins[0]['id']}", 409)
    assert refused["code"] == "last-administrator"


@pytest.mark.parametrize("ttl", ["0 seconds", "-1 hour", "90000 years", "soon"])
def test_a_life_that_is_none(locked: Guarded, ttl: str) -> None:
    body = {"name": "x", "role": "viewer", "ttl": ttl}
    assert problem(locked.service.http.post("/v1/tokens", json=body), 422)["errors"]


def test_tokens_are_bounded_and_ended_ones_make_room(
    locked: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens_module, "MOST_TOKENS", 6)
    ended = locked.create("viewer")
    body = {"name": "one more", "role": "viewer"}
    assert locked.service.post("/v1/tokens", body, 409)["code"] == "too-many-tokens"
    locked.service.call("DELETE", f"/v1/tokens/{ended['id']}", 200)
    locked.service.post("/v1/tokens", body)
    assert ended["id"] not in {t["id"] for t in locked.service.get("/v1/tokens")["items"]}


def test_a_first_token_that_was_revoked_is_not_accepted_again_when_room_is_made(
    locked: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = locked.service
    first = service.get("/v1/whoami")["token"]
    old = dict(service.http.headers)
    other = service.post("/v1/tokens", {"name": "other", "role": "admin"})
    service.http.headers.update(bearer(other["token"]))
    service.call("DELETE", f"/v1/tokens/{first}", 200)
    ended = locked.create("viewer")
    service.call("DELETE", f"/v1/tokens/{ended['id']}", 200)
    monkeypatch.setattr(tokens_module, "MOST_TOKENS", 1)
    service.post("/v1/tokens", {"name": "one more", "role": "viewer"})
    service.http.headers.update(old)
    assert service.get("/v1/streams", 401)["code"] == "bad-token"


def test_on_loopback_nobody_needs_a_token_but_a_given_one_counts(service: Service) -> None:
    assert service.get("/v1/whoami") == {
        "token": None,
        "name": "anonymous",
        "role": "admin",
        "required": False,
    }
    made = service.post("/v1/tokens", {"name": "reader", "role": "viewer"})
    service.http.headers.update(bearer(made["token"]))
    assert service.get("/v1/whoami")["role"] == "viewer"
    assert service.post("/v1/streams", STREAMS[0], 403)["code"] == "forbidden"
    service.http.headers.update(bearer(made["token"][:-1]))
    assert service.get("/v1/streams", 401)["code"] == "bad-token"


def test_the_administrators_file_outlives_what_redis_forgets(
    settings: ServiceSettings, tmp_path: Path
) -> None:
    file = tmp_path / "admin.token"
    with guarded(settings, tmp_path) as locked:
        text = file.read_text().strip()
        locked.service.redis.flushall()
        assert locked.call("GET", "/v1/tokens", text).status_code == 200
        assert locked.call("GET", "/v1/streams", locked.tokens[Role.ADMIN]).status_code == 401
        locked.service.redis.flushall()
    # A restart registers it again, and makes no other.
    changed = replace(settings, auth=Auth.REQUIRED, admin_token_file=str(file))
    with serving(changed) as service:
        assert file.read_text().strip() == text
        service.http.headers.update(bearer(text))
        assert len(service.get("/v1/tokens")["items"]) == 1


@pytest.mark.parametrize("content", ["", "secret", "anb_0123456789ab_" + 63 * "0", "\xff"])
def test_a_file_that_holds_no_token_is_refused(
    settings: ServiceSettings, tmp_path: Path, content: str
) -> None:
    file = tmp_path / "admin.token"
    file.write_text(content, encoding="latin-1")

    with pytest.raises(SettingsError, match=r"remove the file"):
        read_file(file, datetime.now(UTC))
    assert file.read_text(encoding="latin-1") == content


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "192.0.2.1", "box"])
def test_beyond_loopback_tokens_can_not_be_left_out(host: str) -> None:
    assert ServiceSettings(host=host).requires_tokens
    with pytest.raises(SettingsError, match="auth"):
        ServiceSettings(host=host, auth=Auth.OFF)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "localhost"])
def test_loopback_is_open_unless_told_otherwise(host: str) -> None:
    assert not ServiceSettings(host=host).requires_tokens
    assert not ServiceSettings(host=host, auth=Auth.OFF).requires_tokens
    assert ServiceSettings(host=host, auth=Auth.REQUIRED).requires_tokens


def test_failures_are_limited_and_valid_tokens_are_not(locked: Guarded) -> None:
    bad = f"anb_{12 * '0'}_{64 * '0'}"
    found = [locked.call("GET", "/v1/streams", bad) for _ in range(BURST + 5)]
    assert {r.status_code for r in found} == {401, 429}
    assert found[0].headers["www-authenticate"].startswith("Bearer")
    assert int(found[-1].headers["retry-after"]) > 0
    assert locked.call("GET", "/v1/streams", locked.tokens[Role.VIEWER]).status_code == 200
    refusals = locked.service.get("/v1/audit?kind=refusal&limit=1000")["items"]
    assert len(refusals) == sum(r.status_code == 401 for r in found)


def test_the_limiter_forgets() -> None:
    now = 0.0
    failures = FailureLimiter(lambda: now)
    assert all(failures.allow("a") for _ in range(BURST))
    assert not failures.allow("a")
    now += 6.0
    assert failures.allow("a")
    assert not failures.allow("a")
    for number in range(2 * MOST_ADDRESSES):
        failures.allow(f"10.0.{number // 256}.{number % 256}")
    assert len(failures._left) == MOST_ADDRESSES


def test_comparison_looks_at_digests_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[tuple[str, str]] = []

    def compare(one: str, other: str) -> bool:
        compared.append((one, other))
        return one == other

    monkeypatch.setattr("hmac.compare_digest", compare)
    made = make_token("x", Role.VIEWER, datetime.now(UTC))
    assert is_same(made.text, made.record)
    assert not is_same(made.text[:-1] + "g", made.record)
    assert not is_same(made.text, None)
    # An unknown token takes as much work as a wrong one, and secrets themselves are never compared.
    assert len(compared) == 3
    assert all(len(part) == 64 for pair in compared for part in pair)


def test_a_tail_ends_when_its_token_is_revoked(
    locked: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch_service.streaming.tail.RENEW", 0.1)
    monkeypatch.setattr("anabranch_service.streaming.tail.BLOCK", 50)
    for stream in STREAMS:
        locked.service.post("/v1/streams", stream)
    locked.service.post("/v1/queries", {"id": "pair", "sql": PAIR})
    reader = locked.create("viewer")
    headers = bearer(reader["token"])
    url = f"{locked.url}/v1/queries/pair/results"
    with httpx.stream("GET", url, headers=headers, timeout=60) as response:
        assert response.status_code == 200
        parts = response.iter_text()
        assert next(parts).startswith(": results of pair")
        locked.service.call("DELETE", f"/v1/tokens/{reader['id']}", 200)
        assert 'data: {"reason": "unauthorized"}' in "".join(parts)


def test_one_token_does_not_take_all_tails(
    locked: Guarded, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("anabranch_service.streaming.tail.MOST_TAILS_EACH", 1)
    for stream in STREAMS:
        locked.service.post("/v1/streams", stream)
    locked.service.post("/v1/queries", {"id": "pair", "sql": PAIR})
    path = "/v1/queries/pair/results"
    greedy, other = locked.create("viewer")["token"], locked.tokens[Role.VIEWER]
    with (
        httpx.stream("GET", locked.url + path, headers=bearer(greedy), timeout=60) as first,
        httpx.stream("GET", locked.url + path, headers=bearer(other), timeout=60) as second,
    ):
        assert first.status_code == second.status_code == 200
        parts = first.iter_bytes()
        assert next(parts).startswith(b": results of pair")
        assert locked.call("GET", path, greedy).json()["code"] == "too-many-tails"

    def free() -> bool:
        with httpx.stream("GET", locked.url + path, headers=bearer(greedy), timeout=60) as again:
            return again.status_code == 200

    eventually(free, "its place is free again")


def test_keys_are_the_namespaces() -> None:
    keys = Keys("demo")
    assert (keys.tokens, keys.token_uses) == ("demo:tokens", "demo:tokens:uses")
    assert keys.audit("change") == "demo:audit:change"
