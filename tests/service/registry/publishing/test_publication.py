"""Tests of the leader's writes: none is made after its term has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from redis.asyncio import Redis

from anabranch_contract.plans.ruleset import digest
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_service.clock import utc_now
from anabranch_service.planning.loop import settled
from anabranch_service.registry.publishing.approvals import Approvals, HeldPlan
from anabranch_service.registry.publishing.lease import LeadershipLost, LeaderTerm
from anabranch_service.registry.publishing.publication import Patched, Publication, seal, seal_again
from anabranch_service.registry.records import EpochRecord, KeptRevision, QueryRecord
from anabranch_service.registry.store import Store
from tests.service.conftest import PAIR
from tests.support.worlds.service import Service

HELD = HeldPlan(
    digest="d", basis="b", since=utc_now(), proposed_at=utc_now(), epoch=3, waiting=("pair",)
)
#: A term of an owner that never led.
STALE = LeaderTerm("nobody", 1)


def everything(service: Service) -> dict[str, Any]:
    """Return everything that the service has written, except its lease and leader."""
    read: dict[str, Callable[[str], Any]] = {
        "string": service.redis.get,
        "hash": service.redis.hgetall,
        "list": lambda key: service.redis.lrange(key, 0, -1),
        "zset": lambda key: service.redis.zrange(key, 0, -1, withscores=True),
        "stream": service.redis.xlen,
    }
    keys = sorted(map(str, service.redis.keys(f"{service.keys.namespace}:*")))
    own = [k for k in keys if k not in (service.keys.lease, service.keys.leader)]
    return {key: read[str(service.redis.type(key))](key) for key in own}


@pytest.mark.parametrize(
    "write",
    [
        *("epoch", "patch", "again", "forget", "revision", "measured", "answer", "rations", "hold"),
        *("query", "lineage", "advance"),
    ],
)
def test_a_term_that_is_over_writes_nothing(shop: Service, write: str) -> None:
    shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
    for epoch in range(-1, 2):
        shop.plan(epoch)
    record = EpochRecord.model_validate_json(str(shop.redis.get(shop.keys.epoch(0))))
    text = str(shop.redis.get(shop.keys.ruleset(0)))
    boundary = str(shop.redis.lindex(shop.keys.boundaries, -1))
    shop.redis.set(shop.keys.cursor, 0)
    shop.redis.set(shop.keys.rations, "kept")
    # The running loop would answer it again.
    before = {k: v for k, v in everything(shop).items() if k != shop.keys.cursor}
    number: dict[str, Any] = {"epoch": 0, "revision": 1}
    revision = KeptRevision.model_construct(**number)

    async def run() -> None:
        async with Redis.from_url(shop.settings.redis_url, decode_responses=True) as redis:
            late = Publication(Store(redis, shop.keys.namespace), STALE)
            writes: dict[str, Callable[[], Awaitable[object]]] = {
                "epoch": lambda: late.epoch(seal(record.model_copy(update={"epoch": 99}), text)),
                "patch": lambda: late.epoch(
                    replace(
                        seal(record.model_copy(update={"epoch": 99}), text),
                        patch=Patched(0, digest(text), "{}"),
                    )
                ),
                "again": lambda: late.epoch_again(
                    seal_again(record.again(99, datetime.now(UTC))), record.epoch
                ),
                "forget": lambda: late.forget_epochs(1, 1 << 30),
                "revision": lambda: late.revision(revision, text, RevisionAnswer(0)),
                "measured": lambda: late.measured(revision),
                "answer": lambda: late.answer(RevisionAnswer(0)),
                "rations": lambda: late.rations(None),
                "hold": lambda: late.hold(Approvals(), HELD, record, text),
                "query": lambda: late.query("pair", lambda q: settled(q, 9, False, {})),
                "lineage": lambda: late.lineage("run", "START"),
                "advance": lambda: late.advance(boundary),
            }
            with pytest.raises(LeadershipLost):
                await writes[write]()

    asyncio.run(run())
    after = {k: v for k, v in everything(shop).items() if k != shop.keys.cursor}
    assert after == before


def test_no_run_takes_over_from_one_that_is_no_longer_the_query_s(shop: Service) -> None:
    for _ in range(3):
        shop.post("/v1/queries", {"id": "pair", "sql": PAIR})
        shop.call("DELETE", "/v1/queries/pair", 202)
    assert shop.get("/v1/queries/pair")["run"] == "pair~3"
    before = shop.redis.hgetall(shop.keys.queries)

    async def run() -> None:
        async with Redis.from_url(shop.settings.redis_url, decode_responses=True) as redis:
            store = Store(redis, shop.keys.namespace)
            owner, token = map(str, shop.redis.hmget(shop.keys.leader, ["owner", "token"]))
            leader = Publication(store, LeaderTerm(owner, int(token)))

            def change(record: QueryRecord) -> QueryRecord:
                return record.model_copy(update={"read_from": 7})

            assert await leader.query("pair~2", change, takes_over="pair") is None
            assert shop.redis.hgetall(shop.keys.queries) == before
            taken = await leader.query("pair~2", change, takes_over="pair~3")
            assert taken is not None
            assert taken.read_from == 7

    asyncio.run(run())
    assert shop.get("/v1/queries/pair")["run"] == "pair~2"
