"""Tests of cancellations and time limits around Redis commands."""

from __future__ import annotations

import asyncio
import random
import socket
from pathlib import Path

import pytest
from redis.asyncio import Redis
from redis.exceptions import ConnectionError as Disconnected
from redis.exceptions import RedisError

from anabranch_service.registry.redis import connections
from anabranch_service.registry.redis.connections import open_redis


def test_no_time_limit_is_passed_over(redis: str) -> None:
    chance = random.Random(1)

    async def run() -> int:
        connection, expired = open_redis(redis), 0
        try:
            for _ in range(300):
                limit = asyncio.timeout(chance.uniform(0, 0.004))
                try:
                    async with limit:
                        for n in range(20):
                            await connection.set("n", n)
                            assert await connection.get("n") == str(n)
                    assert not limit.expired()
                except TimeoutError:
                    expired += 1
        finally:
            await connection.aclose()
        return expired

    assert asyncio.run(run()) > 30


def test_a_task_ends_at_its_first_cancellation(redis: str) -> None:
    chance = random.Random(2)

    async def forever(connection: Redis) -> None:
        while True:
            await connection.get("n")

    async def run() -> None:
        connection = open_redis(redis)
        for _ in range(100):
            task = asyncio.create_task(forever(connection))
            await asyncio.sleep(chance.uniform(0, 0.003))
            task.cancel()
            done, _ = await asyncio.wait({task}, timeout=30)
            assert done
        await connection.aclose()

    asyncio.run(run())


@pytest.mark.parametrize("scheme", ["redis", "rediss", "unix"])
def test_a_server_that_is_not_there(scheme: str, tmp_path: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"

    async def run() -> None:
        connection = open_redis(f"{scheme}://{tmp_path / 'none' if scheme == 'unix' else address}")
        try:
            await connection.get("n")
        finally:
            await connection.aclose()

    with pytest.raises(Disconnected):
        asyncio.run(run())


def test_a_server_that_does_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SECONDS", 0.2)

    async def run(port: int) -> None:
        connection = open_redis(f"redis://127.0.0.1:{port}?protocol=2")
        try:
            await connection.set("n", "x" * 50_000_000)
        finally:
            await connection.aclose()

    with (
        socket.create_server(("127.0.0.1", 0)) as deaf,
        pytest.raises(RedisError, match=r"(?i)timeout"),
    ):
        asyncio.run(run(deaf.getsockname()[1]))
