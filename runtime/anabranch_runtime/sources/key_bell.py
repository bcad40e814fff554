"""Waiting for a change of keys in Redis, instead of reading them again and again.

If a client has read a key, Redis reports the key's next change to it (tracking, made for caches in
clients). Without tracking, or while Redis can't be reached, a wait lasts the full time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection
from typing import Any, cast

import redis
import structlog
from redis.backoff import NoBackoff
from redis.client import PubSub
from redis.exceptions import RedisError
from redis.retry import Retry

_LOG = structlog.get_logger("anabranch.runtime")

#: Channel of Redis for messages about changed keys.
_CHANGED = "__redis__:invalidate"
#: Timeout of calls to Redis in seconds, and seconds without tracking after a failure.
PATIENCE, REST = 2.0, 10.0


class KeyBell:
    """Wakes a waiting thread when one of ``keys`` changes in the Redis at ``url``."""

    def __init__(self, url: str, keys: Collection[str]) -> None:
        self._url, self._keys = url, tuple(keys)
        self._reader: redis.Redis | None = None
        self._messages: PubSub | None = None
        #: Whether a change of a key ends the next wait.
        self._armed = False
        self._resting_until = float("-inf")

    def arm(self) -> bool:
        """Have the next change of a key end a wait. Return whether keys may have changed meanwhile,
        so that the caller has to read them before it waits."""
        if self._armed or not self._keys or time.monotonic() < self._resting_until:
            return False
        try:
            if self._reader is None or self._messages is None:
                self._reader, self._messages = self._connected()
            while self._messages.get_message(timeout=0.0) is not None:
                pass
            self._reader.exists(*self._keys)
        except RedisError as error:
            self._fail(error)
            return False
        self._armed = True
        return True

    def wait(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for a change in Redis; return whether a key has changed."""
        deadline = time.monotonic() + seconds
        while self._armed and self._messages is not None:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            try:
                found = self._messages.get_message(timeout=left)
            except RedisError as error:
                self._fail(error)
                break
            if found is not None and found["type"] == "message":
                self._armed = False
                return True
        time.sleep(max(deadline - time.monotonic(), 0.0))
        return False

    def disarm(self) -> None:
        """Ignore changes of keys in Redis until the next :meth:`arm`."""
        self._armed = False

    def close(self) -> None:
        """Close the connections to Redis."""
        self._armed = False
        for one in (self._messages, self._reader):
            if one is not None:
                with contextlib.suppress(RedisError, OSError):
                    one.close()
        self._reader = self._messages = None

    def _connected(self) -> tuple[redis.Redis, PubSub]:
        """Connect to Redis twice: one connection reads keys, one gets messages about changes."""
        # In version 2 of its protocol, Redis sends these as messages of a channel. A connection
        # that silently replaced a lost one would get none, so connections are not retried.
        given: dict[str, Any] = {"protocol": 2, "retry": Retry(NoBackoff(), 0)}
        given |= {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE}
        messages = cast("Any", redis.Redis.from_url(self._url, **given))
        messages = messages.pubsub(ignore_subscribe_messages=True)
        messages.execute_command("CLIENT", "ID")
        receiver = messages.parse_response()
        messages.subscribe(_CHANGED)
        reader = redis.Redis.from_url(self._url, single_connection_client=True, **given)
        tracking = "CLIENT", "TRACKING", "ON", "REDIRECT", receiver
        cast("Any", reader).execute_command(*tracking)
        return reader, messages

    def _fail(self, error: RedisError) -> None:
        _LOG.info("input in Redis is polled: no messages about changes", error=str(error))
        self.close()
        self._resting_until = time.monotonic() + REST
