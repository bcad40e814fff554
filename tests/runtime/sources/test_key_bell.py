"""Tests of waiting for changes of Redis keys: they end a wait, which otherwise takes its time."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
import redis

from anabranch_runtime.sources import key_bell
from anabranch_runtime.sources.key_bell import KeyBell
from tests.support.surroundings.redis import redis_url

#: Seconds longer than any test waits for a change.
LONG = 20.0


@pytest.fixture
def url() -> Iterator[str]:
    with redis_url() as found:
        yield found


@pytest.fixture
def bell(url: str) -> Iterator[KeyBell]:
    found = KeyBell(url, ("gate", "stream"))
    yield found
    found.close()


def waits(bell: KeyBell, seconds: float) -> tuple[bool, float]:
    """Return whether a key has changed, and the seconds until this was noticed."""
    began = time.monotonic()
    return bell.wait(seconds), time.monotonic() - began


def test_every_change_of_a_key_ends_a_wait(url: str, bell: KeyBell) -> None:
    server = redis.Redis.from_url(url)
    for change in (
        lambda: server.set("gate", 1),
        lambda: server.xadd("stream", {"data": "{}"}),
        lambda: server.delete("gate"),
    ):
        assert bell.arm()
        timer = threading.Timer(0.05, change)
        timer.start()
        changed, seconds = waits(bell, LONG)
        assert changed
        assert seconds < LONG / 2
        timer.join()


def test_a_change_before_the_wait_ends_it_and_others_do_not(url: str, bell: KeyBell) -> None:
    server = redis.Redis.from_url(url)
    assert bell.arm()
    assert not bell.arm()  # the keys were looked at since
    server.set("other", 1)
    changed, seconds = waits(bell, 0.1)
    assert not changed
    assert seconds >= 0.1
    server.set("gate", 1)
    assert waits(bell, LONG)[0]
    # Changes until the next call of arm() are noticed when the keys are checked after it.
    server.set("gate", 2)
    assert bell.arm()
    assert not bell.wait(0.1)


def test_without_messages_a_wait_takes_its_time(
    url: str, bell: KeyBell, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = redis.Redis.from_url(url)
    monkeypatch.setattr(key_bell, "REST", 0.5)
    assert bell.arm()
    server.client_kill_filter(_type="pubsub")
    changed, seconds = waits(bell, 0.2)
    assert not changed
    assert seconds >= 0.2
    assert not bell.arm()  # it rests
    time.sleep(0.5)
    assert bell.arm()
    server.set("gate", 1)
    assert waits(bell, LONG)[0]


def test_without_keys_or_server_it_only_waits() -> None:
    for bell in (KeyBell("redis://127.0.0.1:1", ("gate",)), KeyBell("redis://127.0.0.1:1", ())):
        assert not bell.arm()
        assert waits(bell, 0.02)[1] >= 0.02
        bell.close()
