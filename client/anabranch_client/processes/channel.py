"""Access to the Redis keys by which the client controls a pipeline that it has started.

:mod:`anabranch_contract.protocol.progress` describes the protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis

from anabranch_client.errors import ProcessError
from anabranch_contract.connectors.addresses import masked
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Progress

#: Seconds after which a Redis server that does not answer counts as down.
_TIMEOUT = 20.0


class Channel:
    """Control and progress of one pipeline."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url = url
        self.namespace = namespace
        self.keys = Keys(namespace)
        self._redis = redis.Redis.from_url(
            url, decode_responses=True, socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT
        )

    def close(self) -> None:
        """Close the connections."""
        self._redis.close()

    def ping(self) -> bool:
        """Whether Redis answers a ping."""
        try:
            return bool(self._redis.ping())
        except redis.RedisError:
            return False

    def progress(self) -> Progress | None:
        """The last progress that any runtime has written, alive or not; None if there is none."""
        with self._reaching():
            text = self._redis.get(self.keys.runtime)
        return None if text is None else Progress.loads(str(text))

    def published(self, epoch: int) -> bool:
        """Whether the ruleset of ``epoch`` has been published."""
        with self._reaching():
            return self._redis.zscore(self.keys.published, str(epoch)) is not None

    def activations(self) -> dict[str, Activation]:
        """Query id -> its activation by the runtime."""
        with self._reaching():
            found = dict(self._redis.hgetall(self.keys.activations))
        return {str(q): Activation.loads(str(text)) for q, text in found.items()}

    def open_gate(self, batches: int | None) -> None:
        """Let the runtime start batches up to a total number ``batches`` (None: no limit)."""
        with self._reaching():
            if batches is None:
                self._redis.delete(self.keys.gate)
            else:
                self._redis.set(self.keys.gate, batches)

    def stop(self) -> None:
        """Request the runtime to finish its batch and exit."""
        with self._reaching():
            self._redis.set(self.keys.stop, "1")

    def clear_stop(self) -> None:
        """Withdraw an earlier :meth:`stop`."""
        with self._reaching():
            self._redis.delete(self.keys.stop)

    def forget(self) -> None:
        """Delete every key of the pipeline, if its Redis is an external server."""
        with self._reaching():
            for name in self._redis.scan_iter(match=f"{self.namespace}:*", count=1000):
                self._redis.delete(name)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Context that converts errors of the Redis library to errors of the client."""
        try:
            yield
        except redis.RedisError as cause:
            raise ProcessError(
                f"Redis at {masked(self.url)} does not answer: {masked(str(cause))}",
                remedy="see its log, or whether the address is right",
            ) from cause
