"""Tests of leadership: taking, renewing, losing and giving up the lease, on a real Redis."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from redis.asyncio import Redis
from structlog.testing import capture_logs

from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Boundary
from anabranch_contract.protocol.revisions import RevisionAnswer
from anabranch_service.registry.publishing.lease import LeadershipLost, Lease, leader_of
from anabranch_service.registry.publishing.publication import Publication
from anabranch_service.registry.store import Store

NAMESPACE = "lease"
KEYS = Keys(NAMESPACE)
#: Seconds of a lease that does not expire within a test, and of one that has when it is checked.
LONG, SHORT = 60.0, 0.05


def check(url: str, body: Callable[[Redis], Awaitable[None]]) -> None:
    async def run() -> None:
        async with Redis.from_url(url, decode_responses=True) as redis:
            await redis.flushdb()
            await body(redis)

    asyncio.run(run())


def lease(redis: Redis, address: str, seconds: float = LONG) -> Lease:
    return Lease(redis, KEYS, address, seconds)


async def contents(client: Redis) -> dict[str, object]:
    """Return everything in Redis, except remaining lifetimes."""
    return {
        "leader": await client.hgetall(KEYS.leader),
        "boundaries": await client.lrange(KEYS.boundaries, 0, -1),
        "keys": sorted(await client.keys()),
    }


def test_one_leads_and_another_waits(redis: str) -> None:
    async def body(client: Redis) -> None:
        assert await leader_of(client, KEYS) is None
        first, second = lease(client, "a"), lease(client, "b")
        await first.turn()
        await second.turn()
        assert first.term is not None
        assert second.term is None
        found = await leader_of(client, KEYS)
        assert found is not None
        assert (found.term, found.address) == (first.term, "a")
        assert found.seconds is not None
        assert found.seconds <= LONG

    check(redis, body)


def test_a_lease_that_ran_out_can_be_taken_and_the_token_grows(redis: str) -> None:
    async def body(client: Redis) -> None:
        first, second = lease(client, "a", SHORT), lease(client, "b")
        await first.turn()
        await asyncio.sleep(2 * SHORT)
        found = await leader_of(client, KEYS)
        assert found is not None
        assert found.seconds is None
        await second.turn()
        assert first.term is not None
        assert second.term is not None
        assert second.term.token == first.term.token + 1

    check(redis, body)


def test_a_lease_that_ran_out_and_that_nobody_took_is_renewed(redis: str) -> None:
    async def body(client: Redis) -> None:
        first = lease(client, "a", SHORT)
        await first.turn()
        term = first.term
        assert term is not None
        await asyncio.sleep(2 * SHORT)
        await Publication(Store(client, NAMESPACE), term).answer(RevisionAnswer(0))
        # So that the lease still exists when the test checks it.
        first.seconds = LONG
        await first.turn()
        assert first.term == term
        assert await client.exists(KEYS.lease)

    check(redis, body)


def test_what_follows_where_the_dead_one_listened_leads_at_once_but_once(redis: str) -> None:
    async def body(client: Redis) -> None:
        killed, restarted, twin = (lease(client, "a") for _ in range(3))
        await killed.turn()
        await restarted.turn()
        assert restarted.term is not None
        await killed.turn()
        assert killed.term is None
        # Two services with the same address would take the lease from each other forever.
        await killed.turn()
        assert killed.term is None
        await twin.turn()
        assert twin.term is not None

    check(redis, body)


def test_who_lost_the_lead_writes_nothing_and_says_so_once(redis: str) -> None:
    async def body(client: Redis) -> None:
        store = Store(client, NAMESPACE)
        stopped, other = lease(client, "a", SHORT), lease(client, "b")
        await stopped.turn()
        term = stopped.term
        assert term is not None
        boundary = Boundary(-1, 0).dumps()
        await client.rpush(KEYS.boundaries, boundary)
        await asyncio.sleep(2 * SHORT)
        await other.turn()
        before = await contents(client)
        late = Publication(store, term)
        writes: list[Callable[[], Awaitable[None]]] = [
            lambda: late.answer(RevisionAnswer(0)),
            lambda: late.rations(None),
            lambda: late.advance(boundary),
        ]
        with capture_logs() as log:
            for write in writes:
                with pytest.raises(LeadershipLost):
                    await write()
                stopped.lose(term)
            await stopped.turn()
        assert stopped.term is None
        assert [line["event"] for line in log] == ["leadership lost, nothing more is published"]
        assert await contents(client) == before

    check(redis, body)


def test_a_redis_that_lost_its_data_does_not_confuse_terms(redis: str) -> None:
    async def body(client: Redis) -> None:
        first, second = lease(client, "a"), lease(client, "b")
        await first.turn()
        await client.flushdb()
        await second.turn()
        assert first.term is not None
        assert second.term is not None
        assert second.term.token == first.term.token
        with pytest.raises(LeadershipLost):
            await Publication(Store(client, NAMESPACE), first.term).rations(None)

    check(redis, body)


def test_who_leaves_lets_another_lead_at_once(redis: str) -> None:
    async def body(client: Redis) -> None:
        first, second = lease(client, "a"), lease(client, "b")
        running = asyncio.create_task(first.run())
        while first.term is None:
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.wait({running})
        await second.turn()
        assert second.term is not None

    check(redis, body)


def test_without_redis_nobody_leads_and_the_lease_says_so() -> None:
    async def run() -> None:
        async with Redis.from_url("redis://127.0.0.1:1/0") as client:
            found = lease(client, "a")
            running = asyncio.create_task(found.run())
            while not found.error:
                await asyncio.sleep(0.01)
            assert found.term is None
            running.cancel()
            await asyncio.wait({running})

    asyncio.run(run())
