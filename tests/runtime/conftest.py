"""A real server for the tests of a module."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import redis as redis_client

from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.driver.reporting import reporting
from tests.support.surroundings.redis import redis_url


@pytest.fixture(autouse=True)
def reports_of_every_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let live drivers report the progress after every batch."""
    monkeypatch.setattr(reporting, "PAUSE", 0.0)


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    """The address of a server of the module's own."""
    with redis_url() as url:
        yield url


@pytest.fixture
def url(redis: str) -> str:
    """The same server, emptied."""
    redis_client.Redis.from_url(redis).flushall()
    fetch_ruleset.cache_clear()
    return redis
