"""The few Redis keys that the client shares with a running pipeline it has started itself.

The protocol is described in the planner's ``exchange`` module. The client imports none of the
other three packages, so the handful of names it needs are spelled out here; a test compares them
with the originals.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import redis
from pydantic import BaseModel, ConfigDict, Field

from anabranch_client.addresses import masked
from anabranch_client.errors import ProcessError

#: A server that hangs is as good as none after this many seconds.
_TIMEOUT = 20.0


class Document(BaseModel):
    """Base of what is read from Redis: fields that the client has no use for are ignored."""

    model_config = ConfigDict(extra="ignore", frozen=True)


class Heartbeat(Document):
    """A sign of life of the runtime, which expires."""

    run: str
    state: str = "working"


class Progress(Document):
    """How far the runtime is, rewritten after every batch; ``run`` is whose progress it is."""

    state: str
    run: str = ""
    committed: int = 0
    epoch: int = -1
    epoch_starts: dict[int, int] = Field(default_factory=dict)
    ruleset_epoch: int = -1
    streams: dict[str, dict[str, int]] = Field(default_factory=dict)
    results: dict[str, int] = Field(default_factory=dict)
    probes: dict[int, int] = Field(default_factory=dict)
    state_bytes: int = 0
    batch_seconds: float = 0.0
    processing_seconds: float = 0.0
    exhausted: bool = False
    error: str | None = None

    @property
    def input_tuples(self) -> int:
        """Rows read so far, all streams; late and invalid ones included."""
        return sum(counts.get("input", 0) for counts in self.streams.values())


class Visibility(Document):
    """From when on an alias's stored tuples are visible to a query."""

    batch: int
    event_time: int | None


class Failure(Document):
    """Why a query has failed while it ran."""

    code: str
    message: str
    expression: str
    batch: int
    remedy: str = ""


class Activation(Document):
    """What the runtime fixed when it activated a query; ``earlier`` activations have ended."""

    activated_batch: int
    visible_from: dict[str, Visibility]
    complete_from: int | None = None
    complete: str = "always"
    expired_batch: int | None = None
    results: int = 0
    failure: Failure | None = None
    earlier: list[Activation] = Field(default_factory=list)


class Channel:
    """Control and progress of one pipeline."""

    def __init__(self, url: str, namespace: str) -> None:
        self.url = url
        self.namespace = namespace
        self._redis = redis.Redis.from_url(
            url, decode_responses=True, socket_timeout=_TIMEOUT, socket_connect_timeout=_TIMEOUT
        )

    def close(self) -> None:
        """Give the connections back."""
        self._redis.close()

    def key(self, name: str) -> str:
        """The full name of a key of this pipeline."""
        return f"{self.namespace}:{name}"

    def ping(self) -> bool:
        """Whether Redis answers."""
        try:
            return bool(self._redis.ping())
        except redis.RedisError:
            return False

    def progress(self) -> Progress | None:
        """What the last runtime wrote of its progress, whether it lives or not; None: nothing."""
        with self._reaching():
            text = self._redis.get(self.key("runtime"))
        return None if text is None else Progress.model_validate_json(str(text))

    def published(self, epoch: int) -> bool:
        """Whether the ruleset of ``epoch`` has been published."""
        with self._reaching():
            return self._redis.zscore(self.key("published"), str(epoch)) is not None

    def activations(self) -> dict[str, Activation]:
        """Query id -> what the runtime fixed at its activation."""
        with self._reaching():
            found = dict(self._redis.hgetall(self.key("activations")))
        return {str(q): Activation.model_validate_json(str(text)) for q, text in found.items()}

    def open_gate(self, batches: int | None) -> None:
        """Let ``batches`` batches (counted from the first) start; None: no limit."""
        with self._reaching():
            if batches is None:
                self._redis.delete(self.key("gate"))
            else:
                self._redis.set(self.key("gate"), batches)

    def stop(self) -> None:
        """Ask the runtime to finish its batch and leave."""
        with self._reaching():
            self._redis.set(self.key("stop"), "1")

    def clear_stop(self) -> None:
        """Forget an earlier :meth:`stop`."""
        with self._reaching():
            self._redis.delete(self.key("stop"))

    def forget(self) -> None:
        """Delete every key of the pipeline: for one that used a server that goes on."""
        with self._reaching():
            for name in self._redis.scan_iter(match=self.key("*"), count=1000):
                self._redis.delete(name)

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        """Say in the client's own words that Redis is gone."""
        try:
            yield
        except redis.RedisError as cause:
            raise ProcessError(
                f"Redis at {masked(self.url)} does not answer: {masked(str(cause))}",
                remedy="see its log, or whether the address is right",
            ) from cause
