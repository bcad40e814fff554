"""Test that the schedule of rations is parsed once per text, however many answers need it."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from redis.asyncio import Redis

from anabranch_contract.plans.rations import Ranking, RationedGoal, RationSchedule, SchedulePoint
from anabranch_contract.queries.joins import Label, QueryId
from anabranch_service.registry.store import Store
from tests.support.cases.leading import leading
from tests.support.surroundings.redis import redis_url

GOALS = (RationedGoal(QueryId("q"), Label("r"), Ranking((("k", "bigint"),), by_batch=True)),)
SCHEDULE = RationSchedule(0, 0, GOALS, (SchedulePoint(0.0, (0.0,)), SchedulePoint(1.0, (1.0,))))


def test_a_schedule_is_read_once_and_never_stale() -> None:
    async def check(url: str) -> None:
        async with Redis.from_url(url, decode_responses=True) as client:
            store, writer = Store(client, "test"), await leading(client, "test")
            assert await store.rations() is None
            await writer.rations(SCHEDULE)
            first = await store.rations()
            assert first == SCHEDULE
            assert await store.rations() is first
            # A newer schedule is read at once.
            newer = replace(SCHEDULE, revision=1)
            await writer.rations(newer)
            assert await store.rations() == newer
            await client.set(store.keys.rations, "{")
            assert await store.rations() is None
            await writer.rations(SCHEDULE)
            assert await store.rations() == SCHEDULE
            await writer.rations(None)
            assert await store.rations() is None

    with redis_url() as url:
        asyncio.run(check(url))
