"""Test that two services that start at the same time make one first administrator's token."""

from __future__ import annotations

import asyncio
from pathlib import Path

from redis.asyncio import Redis

from anabranch_service.access import first_token
from anabranch_service.access.tokens import Tokens
from anabranch_service.clock import utc_now
from anabranch_service.registry.store import Store


def test_two_services_that_share_the_file_make_one_token(redis: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with Redis.from_url(redis, decode_responses=True) as client:
            both = [Tokens(Store(client, "first-token")) for _ in range(2)]
            path = tmp_path / "admin.token"
            await asyncio.gather(*(first_token.ensure(t, path, utc_now()) for t in both))
            (known,) = await both[0].all()
            assert [t.first and t.first.id for t in both] == [known.id, known.id]

    asyncio.run(run())
