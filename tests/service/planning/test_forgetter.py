"""Tests that queries that ended long ago are forgotten, their ids are free, and no run id is
reused.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, cast

from redis.asyncio import Redis

from anabranch_contract.protocol.activations import Activation, Failure
from anabranch_service.planning.forgetter import Forgetter, whole
from anabranch_service.registry.publishing.lease import LeaderTerm, Lease
from anabranch_service.registry.store import Store
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

ACTIVE = Activation(0, {})
ENDED = replace(ACTIVE, expired_batch=3)


def register(shop: Service, name: str) -> str:
    """Register a query; return the run that is begun."""
    found = shop.post("/v1/queries", {"id": name, "sql": PAIR})
    return str(found["run"])


def remove(shop: Service, name: str) -> None:
    """Delete a query."""
    assert shop.http.delete(f"/v1/queries/{name}").is_success


def look(shop: Service, *days: float) -> list[int]:
    """Return how many runs the leading service forgets so many days from now."""
    settings = shop.settings

    async def turns() -> list[int]:
        server = Redis.from_url(settings.redis_url, decode_responses=True)
        store, found = Store(server, settings.namespace), []
        lease = Lease(server, store.keys, "here", 5.0)
        try:
            owner, token = await cast("Any", server.hmget(store.keys.leader, "owner", "token"))
            lease.term = LeaderTerm(owner, int(token))
            for one in days:
                at = (datetime.now(UTC) + timedelta(days=one)).timestamp(), UTC
                found.append(
                    await Forgetter(store, lease, 7.0, partial(datetime.fromtimestamp, *at)).turn()
                )
        finally:
            await server.aclose()
        return found

    return asyncio.run(turns())


def test_what_has_ended_goes_after_some_days(shop: Service) -> None:
    for name in ("stays", "ends"):
        register(shop, name)
    remove(shop, "ends")
    assert look(shop, 0.0, 6.9) == [0, 0]
    assert shop.get("/v1/queries/ends")["status"] == "expired"
    assert look(shop, 7.1, 7.2) == [1, 0]
    shop.get("/v1/queries/ends", 404)
    assert [one["id"] for one in shop.get("/v1/queries")["items"]] == ["stays"]
    # The id is free, and its next run differs from the forgotten one.
    assert register(shop, "ends") == "ends~2"
    assert [one["run"] for one in shop.get("/v1/queries/ends/runs")["items"]] == ["ends~2"]


def test_ten_come_and_ten_go(shop: Service) -> None:
    """Redis keeps no records or activations of queries that ended more than a week ago."""

    def kept() -> tuple[int, int, int]:
        redis, keys = shop.redis, shop.keys
        texts = redis.hvals(keys.queries) + redis.hvals(keys.activations)
        return redis.hlen(keys.queries), redis.hlen(keys.activations), sum(map(len, texts))

    sizes = []
    for week in range(4):
        names = [f"q{week}x{n}" for n in range(10)]
        for name in names:
            register(shop, name)
            shop.activate(name, ACTIVE)
        for name in names:
            remove(shop, name)
            shop.activate(name, ENDED)
        look(shop, 8 * week, 8 * week + 7.5)
        sizes.append(kept())
    assert sizes == [(0, 0, 0)] * 4


def test_runs_of_a_query_that_goes_on_are_forgotten_but_the_newest(shop: Service) -> None:
    for _ in range(3):
        register(shop, "q")
        remove(shop, "q")
    assert register(shop, "q") == "q~4"
    assert look(shop, 0.0, 8.0) == [0, 3]
    assert shop.get("/v1/queries/q")["run"] == "q~4"
    remove(shop, "q")
    assert look(shop, 9.0, 17.0) == [0, 1]
    assert register(shop, "q") == "q~5"


def test_a_failed_query_is_forgotten_and_its_activation_stays(shop: Service) -> None:
    register(shop, "q")
    failure = Failure("division-by-zero", "1 / 0", "1 / 0", 3)
    shop.activate("q", replace(ENDED, failure=failure))
    shop.activate("gone", ENDED)
    assert look(shop, 0.0, 8.0) == [0, 1]
    shop.get("/v1/queries/q", 404)
    # The runtime continues to write a failed activation; others without a record are removed.
    assert shop.redis.hkeys(shop.keys.activations) in ([b"q"], ["q"])


def test_a_newest_run_goes_last(shop: Service) -> None:
    for name in ("a", "b"):
        register(shop, name)

    async def records() -> list[str]:
        server = Redis.from_url(shop.settings.redis_url, decode_responses=True)
        try:
            found = await Store(server, shop.keys.namespace).queries()
        finally:
            await server.aclose()
        one = found[0]
        many = [one.model_copy(update={"id": name}) for name in ("a", "a~2", "a~3", "b")]
        assert whole(many, {"a", "a~3", "b"}) == ["a", "b"]
        assert whole(many, {"a", "a~2", "a~3"}) == ["a", "a~2", "a~3"]
        return whole(many, set())

    assert asyncio.run(records()) == []
