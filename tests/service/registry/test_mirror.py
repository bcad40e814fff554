"""Tests that a process's mirror of records always equals Redis, also after writes by others."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from itertools import count
from random import Random

import pytest
from redis import Redis
from redis.asyncio import Redis as AsyncRedis

from anabranch_contract.protocol.keys import Keys
from anabranch_service.registry import mirror
from anabranch_service.registry.mirror import Mirror
from tests.support.worlds.records import put, remove


def _mirror(connection: AsyncRedis, keys: Keys, read: list[str]) -> Mirror[int]:
    def one(name: str, text: str) -> int | None:
        read.append(name)
        return None if text == "bad" else int(text)

    def indexed(number: int) -> list[str]:
        return [f"{number % 3}", *(["large"] if number > 2 else [])]

    return Mirror(
        connection, keys.changes, keys.queries, "queries", one, order=lambda n: n, keys=indexed
    )


def test_random_writes_are_seen_at_once(redis: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records are written and removed at random, and the journal is trimmed or lost."""
    monkeypatch.setattr(mirror, "PAGE", 3)
    keys = Keys("mirrored")
    server, rng, texts = Redis.from_url(redis, decode_responses=True), Random(3), dict[str, str]()
    numbers = count(4)

    def change() -> None:
        name = f"q{rng.randrange(12)}"
        if texts and rng.random() < 0.2:
            name = rng.choice(sorted(texts))
            del texts[name]
            remove(server, keys, "queries", name)
        else:
            texts[name] = rng.choice(("bad", "1", "2", "3", str(next(numbers))))
            put(server, keys, "queries", name, texts[name])

    async def play() -> None:
        connection = AsyncRedis.from_url(redis, decode_responses=True)
        found = _mirror(connection, keys, [])
        assert await found.all() == {}
        (kept, kept_index), before = await found.indexed(), dict[str, int]()
        before_index = dict[str, Mapping[str, int]]()
        for _ in range(300):
            for _ in range(rng.randrange(5)):
                change()
            fate = rng.random()
            if fate < 0.1:
                server.xtrim(keys.changes, maxlen=rng.randrange(3))
            elif fate < 0.15:
                server.delete(keys.changes)
            if rng.random() < 0.5:
                assert await found.count() == sum(t != "bad" for t in texts.values())
                continue
            now, index = await found.indexed()
            assert (kept, kept_index) == (before, before_index), "what was returned stays"
            kept, kept_index, before, before_index = now, index, dict(now), dict(index)
            assert now == {n: int(t) for n, t in texts.items() if t != "bad"}
            assert list(now.values()) == sorted(now.values())
            wanted = {k: {n: v for n, v in now.items() if v % 3 == int(k)} for k in "012"}
            wanted["large"] = {n: v for n, v in now.items() if v > 2}
            assert index == {key: of_key for key, of_key in wanted.items() if of_key}
            assert all(list(one.values()) == sorted(one.values()) for one in index.values())
        await connection.aclose()

    asyncio.run(play())


def test_only_what_has_changed_is_read_and_what_was_returned_stays(redis: str) -> None:
    server, keys = Redis.from_url(redis, decode_responses=True), Keys("mirrored-again")
    for number in range(5):
        put(server, keys, "queries", f"q{number}", str(number))

    async def play() -> None:
        connection, read = AsyncRedis.from_url(redis, decode_responses=True), list[str]()
        found = _mirror(connection, keys, read)
        before, version = await found.all(), found.version
        assert sorted(read) == [f"q{number}" for number in range(5)]
        read.clear()
        assert await found.all() is not None
        assert (read, found.version) == ([], version)
        put(server, keys, "queries", "q3", "30")
        server.xadd(keys.changes, {"streams": json.dumps(["q4"])})
        after = await found.all()
        assert (read, found.version) == (["q3"], version + 1)
        assert (before["q3"], after["q3"]) == (3, 30)
        await connection.aclose()

    asyncio.run(play())
