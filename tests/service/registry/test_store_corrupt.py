"""Tests of foreign values in the service's Redis keys: the answer names the key, and is no
permanent 503.
"""

from __future__ import annotations

import pytest

from tests.service.conftest import PAIR
from tests.service.transport.test_problems import problem
from tests.support.worlds.service import Service, eventually


@pytest.mark.parametrize(
    ("key", "path"),
    [
        ("streams", "/v1/streams"),
        ("streams", "/v1/streams/orders"),
        ("queries", "/v1/queries"),
        ("published", "/v1/epochs"),
        ("runtime", "/v1/epochs/current"),
        ("state", "/v1/state"),
        ("tokens", "/v1/tokens"),
        ("samples", "/v1/streams/orders/sample"),
    ],
)
def test_a_key_of_another_type(shop: Service, key: str, path: str) -> None:
    full = shop.keys._key(key)
    # Without its journals the service reads whole hashes again; in one transaction, since its loop
    # may read between two writes.
    with shop.redis.pipeline() as both:
        both.delete(full, shop.keys.changes, shop.keys.activation_changes)
        if key in ("runtime", "state"):
            both.hset(full, "a", "b")
        else:
            both.set(full, "not mine")
        both.execute()
    found = problem(shop.http.get(path), 500)
    assert found["code"] == "corrupt-registry"
    assert repr(full) in str(found["detail"])
    assert "delete the key" in str(found["remedy"])
    shop.redis.delete(full)
    eventually(lambda: shop.http.get(path).status_code in (200, 404), "it answers again")


def test_writing_beside_a_key_of_another_type(shop: Service) -> None:
    shop.redis.delete(shop.keys.changes)
    shop.redis.set(shop.keys.queries, "not mine")
    found = problem(shop.http.post("/v1/queries", json={"id": "pair", "sql": PAIR}), 500)
    assert repr(shop.keys.queries) in str(found["detail"])


def test_rows_for_a_key_that_is_no_stream(service: Service) -> None:
    """The foreign value is in the stream's own key, not the registry's: the client's mistake."""
    service.redis.set("elsewhere", "a string")
    source = {"format": "redis-stream", "options": {"keys": "elsewhere"}}
    service.post("/v1/streams", {"name": "s", "columns": {"k": "bigint"}, "source": source})
    found = problem(service.http.post("/v1/streams/s/rows", json={"rows": [{"k": 1}]}), 409)
    assert found["code"] == "not-a-redis-stream"
    assert "elsewhere" in str(found["detail"])


def test_what_redis_refuses_for_now_is_said(service: Service) -> None:
    service.redis.config_set("maxmemory", "1")
    try:
        body = {"name": "s", "columns": {"k": "bigint"}}
        found = problem(service.http.post("/v1/streams", json=body), 503)
        assert found["code"] == "registry-refuses"
        assert "maxmemory" in str(found["detail"])
    finally:
        service.redis.config_set("maxmemory", "0")
    service.post("/v1/streams", {"name": "s", "columns": {"k": "bigint"}})
