"""Signs of life of a pipeline's members, read in threads so that a hanging member does not block
the supervisor."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from anabranch_client.processes.pipeline import answers
from anabranch_contract.protocol.keys import HEARTBEAT_MILLISECONDS, Keys
from anabranch_contract.protocol.progress import Heartbeat, Progress

#: Seconds between two checks: of Redis, of the service.
_REDIS_EVERY, _SERVICE_EVERY = 0.1, 0.5
#: Time limit of an answer in seconds; less than the silence after which a member counts as hanging.
_PATIENCE = 5.0


@dataclass(slots=True)
class Signs:
    """The members' last signs of life. Each attribute is written by one thread, read by another.

    Attributes:
        redis_at: when Redis last answered (``time.monotonic``).
        loading_at: when Redis last reported that it is still loading its file.
        service_at: when the service last answered.
        beat: the runtime's last heartbeat, and when it was read.
        standby: its standby's last heartbeat, and when it was written.
        committed: id of the runtime's newest run, and its number of committed batches.
    """

    redis_at: float = 0.0
    loading_at: float = 0.0
    service_at: float = 0.0
    beat: tuple[float, Heartbeat] | None = None
    standby: tuple[float, Heartbeat] | None = None
    committed: tuple[str, int] = ("", 0)
    _over: threading.Event = field(default_factory=threading.Event)

    def listen(self, redis_url: str, namespace: str, service_url: Callable[[], str]) -> None:
        """Start the threads; ``service_url`` returns "" while the URL is unknown."""
        retry = Retry(NoBackoff(), 0)
        server = redis.Redis.from_url(
            redis_url,
            decode_responses=True,
            socket_timeout=_PATIENCE,
            socket_connect_timeout=_PATIENCE,
            retry=retry,
        )
        keys = Keys(namespace)
        self._repeat(lambda: self._ask_redis(server, keys), _REDIS_EVERY)
        self._repeat(lambda: self._ask_service(service_url()), _SERVICE_EVERY)

    def close(self) -> None:
        """Stop the threads; one that waits for an answer ends with the process at the latest."""
        self._over.set()

    def _repeat(self, look: Callable[[], None], every: float) -> None:
        def work() -> None:
            while not self._over.wait(every):
                look()

        threading.Thread(target=work, name="signs", daemon=True).start()

    def _ask_redis(self, server: redis.Redis, keys: Keys) -> None:
        try:
            beat, done, standby = server.mget(keys.heartbeat, keys.runtime, keys.standby)
            # A heartbeat stays in Redis for some time after it was written.
            lasts = -1 if standby is None else server.pttl(keys.standby)
        except redis.BusyLoadingError:
            self.loading_at = time.monotonic()
            return
        except redis.RedisError:
            return
        self.redis_at = now = time.monotonic()
        # A malformed document is not a sign of life.
        with contextlib.suppress(ValueError, TypeError, AttributeError):
            if beat is not None:
                self.beat = (now, Heartbeat.loads(str(beat)))
            if lasts > 0:
                written = now - (HEARTBEAT_MILLISECONDS - lasts) / 1000
                self.standby = (written, Heartbeat.loads(str(standby)))
            if done is not None:
                found = Progress.loads(str(done))
                self.committed = (found.run, found.committed)

    def _ask_service(self, url: str) -> None:
        if url and answers(url, _PATIENCE):
            self.service_at = time.monotonic()
