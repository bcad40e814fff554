"""Tests of bodies, parameters and headers that no client of ours sends: structured refusals, never
a 500.
"""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import httpx

from tests.support.worlds.service import Service

#: Values that replace any other.
HOSTILE: list[Any] = [
    2**63, -(2**63), 2**64, 10**400, 1e308, float("nan"), float("inf"), -0.0, True, None,
    "", " ", "\x00", "a\x00b", "\ud800", "\U0010ffff", "ſ", "K", "é", "e\u0301", "９", "x" * 70_000,
    "0000-01-01T00:00:00Z", "9999-12-31T23:59:60Z", "9999-12-31T23:59:59-18:00",
    "0001-01-01T00:00:00+18:00", "1e999999999", "999999999999 weeks", "P999999999999W",
    "9" * 5000, "P" + "9" * 5000 + "D", "INTERVAL '1e999999999' SECOND", "-1 day", "0 s",
    [], {}, [[]], [None], [{}], {"": ""}, {"\x00": 1}, {"a": {"a": {"a": [1]}}},
]  # fmt: skip
#: Bodies for routes whose description has no example.
EXAMPLES: dict[str, list[Any]] = {
    "/v1/streams/{name}": [
        {"retention": {"ttl": "1 day", "latest": ["order_id"]}, "idle_timeout": "1 minute"},
        {"description": "x", "ahead_of_clock": "1 day", "accepted_rejects": 3, "retain": "1 day"},
    ],
    "/v1/settings": [{"parallelism": 2, "optimizer": "joint", "max_stores": 3}],
}
STATEMENTS = [
    "SELECT o.ts + INTERVAL '1e999999999' SECOND AS x FROM orders o",
    f"SELECT o.ts + '{'9' * 60_000}'::interval AS x FROM orders o",
    f"SELECT CAST('{'9 ' * 30_000}' AS INTERVAL) AS x FROM orders o",
    f"SELECT o.total FROM orders o WHERE '{'a' * 30_000}' LIKE '{'%a' * 10_000}%b'",
    "SELECT TIMESTAMP '9999-12-31 23:59:60' AS x FROM orders o",
    "SELECT TIMESTAMP '0000-01-01 00:00:00+18:01' AS x FROM orders o",
    "SELECT \x00 FROM orders o",
    "SELECT o.total AS \"ſ\", o.total AS s FROM orders o",
]  # fmt: skip


def refused_or_done(answer: httpx.Response) -> None:
    """Check that an answer is below 500, and that a refusal has code and remedy."""
    said = f"{answer.request.method} {answer.request.url} {answer.request.content[:300]!r}"
    assert answer.status_code < 500, f"{said}\n{answer.text[:500]}"
    if answer.status_code >= 400:
        assert answer.headers["content-type"] == "application/problem+json", said
        found = answer.json()
        assert found["code"], said
        assert found["remedy"], said


def test_bodies_with_one_hostile_value_each(shop: Service) -> None:
    chance = random.Random(3)
    document = shop.get("/openapi.json")
    for path, methods in sorted(document["paths"].items()):
        for method, described in sorted(methods.items()):
            content = described.get("requestBody", {}).get("content", {})
            known = EXAMPLES.get(path) or (_examples(document, content) if content else ())
            for body in known if content else ():
                for _ in range(6):
                    changed = _with_one(body, chance)
                    refused_or_done(_send(shop, method, path, json.dumps(changed)))


def test_statements(shop: Service) -> None:
    for sql in STATEMENTS:
        refused_or_done(shop.http.post("/v1/queries:explain", json={"sql": sql}))
        refused_or_done(shop.http.post("/v1/queries", json={"sql": sql}))


def test_parameters_and_headers(shop: Service) -> None:
    texts = [str(2**63), str(-(2**63)), "9" * 5000, "1e3", "nan", "%00", "%ff", "é", "１", "", "~~"]
    document = shop.get("/openapi.json")
    for path, methods in sorted(document["paths"].items()):
        given = methods.get("get", {}).get("parameters", ())
        names = [one["name"] for one in given if one["in"] == "query"]
        if "events" in path or "stream" in str(methods.get("get", {}).get("responses", "")):
            continue
        for number, name in enumerate(names):
            for text in texts[number % 2 :: 2]:
                refused_or_done(shop.http.get(f"{_filled(path)}?{name}={text}"))
    odd = [b"\xff\xfe", 'W/"é"'.encode(), b'"' * 900, b"*,*", b"a" * 2000]
    for value in odd:
        refused_or_done(
            shop.http.request(
                "PATCH", "/v1/streams/orders", json={"keep_late": True},
                headers=[(b"If-Match", value), (b"Idempotency-Key", value)],
            )
        )  # fmt: skip
        refused_or_done(
            shop.http.request(
                "POST", "/v1/queries", json={"sql": "SELECT o.total FROM orders o"},
                headers=[(b"Idempotency-Key", value)],
            )
        )  # fmt: skip


def _examples(document: dict[str, Any], content: dict[str, Any]) -> list[Any]:
    schema = content["application/json"]["schema"]
    if "$ref" in schema:
        schema = document["components"]["schemas"][schema["$ref"].rpartition("/")[2]]
    found = schema.get("examples") or [{}]
    assert isinstance(found, list)
    return found


def _send(shop: Service, method: str, path: str, text: str) -> httpx.Response:
    headers = {"Content-Type": "application/json"}
    return shop.http.request(method.upper(), _filled(path), content=text, headers=headers)


def _filled(path: str) -> str:
    return (
        path.replace("{name}", "orders")
        .replace("{column}", "total")
        .replace("{", "")
        .replace("}", "")
    )


def _with_one(body: Any, chance: random.Random) -> Any:
    """Return a copy of ``body`` with a hostile value in one place."""
    changed = copy.deepcopy(body)
    at = changed
    while True:
        keys: list[Any] = list(at) if isinstance(at, dict) else list(range(len(at)))
        if not keys:
            return chance.choice(HOSTILE)
        key = chance.choice(keys)
        if not isinstance(at[key], dict | list) or chance.random() < 0.4:
            at[key] = chance.choice(HOSTILE)
            return changed
        at = at[key]
