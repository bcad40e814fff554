"""Fixtures of runtime tests: a real Redis server per module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as redis_client

from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.reporting import reporting
from tests.support.surroundings.redis import redis_url


@pytest.fixture(autouse=True)
def reports_of_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make live drivers report their progress after every batch."""
    monkeypatch.setattr(reporting, "PAUSE", 0.0)


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """Address of a Redis server for the module."""
    with redis_url() as url:
        yield url


@pytest.fixture
def url(redis: str) -> str:
    """The same Redis server, emptied."""
    redis_client.Redis.from_url(redis).flushall()
    fetch_ruleset.cache_clear()
    return redis
