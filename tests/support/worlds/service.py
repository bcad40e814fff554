"""The real service on a real port, in the test's process."""

from __future__ import annotations

import asyncio
import gc
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any

import httpx
import uvicorn
from redis import Redis

from anabranch_contract import codec
from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.intake import SourceState, SourceStatus
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.measurements import Snapshot
from anabranch_contract.protocol.progress import Boundary, Heartbeat, Progress
from anabranch_service.app import create_app
from anabranch_service.clock import Clock, utc_now
from anabranch_service.settings import ServiceSettings
from anabranch_service.tasks import cancel
from anabranch_service.transport.serving import listening_socket, server_config
from tests.support.worlds.records import put

#: Maximum seconds of waiting for a condition while other tests use the few cores.
PATIENCE = 120.0


@contextmanager
def serving(settings: ServiceSettings, *, clock: Clock = utc_now) -> Iterator[Service]:
    """Context with a service that runs with ``settings`` (whose port is ignored)."""
    with _serving(settings, clock) as running:
        yield running
    # Make connections that the service left open fail this test, not a later one.
    gc.collect()


@contextmanager
def _serving(settings: ServiceSettings, clock: Clock) -> Iterator[Service]:
    listening = listening_socket(replace(settings, host="127.0.0.1", port=0))
    port = listening.getsockname()[1]
    server = _Server(server_config(create_app(settings, clock=clock), settings))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]}, daemon=True)
    thread.start()
    redis = Redis.from_url(settings.redis_url, decode_responses=True)
    try:
        eventually(lambda: server.started, "the service starts")
        base = f"http://127.0.0.1:{port}"
        # ``verify=False`` saves 20 ms for loading certificates, which HTTP does not need.
        with httpx.Client(base_url=base, timeout=60, verify=False) as http:
            yield Service(replace(settings, port=port), http, redis)
    finally:
        server.stop()
        thread.join(PATIENCE)
        redis.close()
        listening.close()
    assert not thread.is_alive(), "the service does not stop"


class _Server(uvicorn.Server):
    """Uvicorn server without the waits of 0.1 s when it stops.

    Hundreds of tests have a service each.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping: asyncio.Event | None = None
        self._lasting: set[asyncio.Task[object]] = set()

    def stop(self) -> None:
        """Stop :meth:`run`, from another thread."""
        self.should_exit = True
        if self._loop is not None and self._stopping is not None:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._stopping.set)

    async def main_loop(self) -> None:
        """Renew the date of the response headers each second until the server stops."""
        self._loop, self._stopping = asyncio.get_running_loop(), asyncio.Event()
        self._lasting = asyncio.all_tasks()
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), 1.0)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Close connections, wait for responses as uvicorn does, shut the application down."""
        for listening in self.servers:
            listening.close()
        for one in sockets or []:
            one.close()
        for connection in list(self.server_state.connections):
            connection.shutdown()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.config.timeout_graceful_shutdown):
                while self.server_state.connections or self.server_state.tasks:
                    await asyncio.sleep(0.005)
        for task in self.server_state.tasks:
            task.cancel()
        # Tasks of the last requests must not open connections after the shutdown.
        if going := asyncio.all_tasks() - self._lasting:
            _, late = await asyncio.wait(going, timeout=0.1)
            await cancel(late)
        await self.lifespan.shutdown()


class Service:
    """A running service: its REST API, and the runtime's side of its state in Redis."""

    def __init__(self, settings: ServiceSettings, http: httpx.Client, redis: Redis) -> None:
        self.settings = settings
        self.http = http
        self.redis = redis
        self.keys = Keys(settings.namespace)

    def post(self, path: str, body: dict[str, Any], status: int = 201) -> dict[str, Any]:
        """POST, check that the response has ``status``, and return its content."""
        return self._read(self.http.post(path, json=body), status)

    def get(self, path: str, status: int = 200) -> dict[str, Any]:
        """GET, check that the response has ``status``, and return its content."""
        return self._read(self.http.get(path), status)

    def call(
        self, method: str, path: str, status: int, body: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """Send any request, check that the response has ``status``, and return its content."""
        return self._read(self.http.request(method, path, json=body), status)

    def boundary(
        self, epoch: int, *, next_batch: int = 0, snapshot: Snapshot | None = None
    ) -> None:
        """Report the boundary at the end of ``epoch``, as the runtime does."""
        document = None if snapshot is None else codec.dumps(snapshot)
        self.redis.rpush(self.keys.boundaries, Boundary(epoch, next_batch, document).dumps())

    def answered(self) -> None:
        """Wait until every boundary has been answered with a ruleset."""
        eventually(self.is_answered, "all boundaries are answered")

    def is_answered(self) -> bool:
        """Whether every boundary has been answered with a ruleset."""
        cursor = int(str(self.redis.get(self.keys.cursor) or 0))
        return cursor == int(str(self.redis.llen(self.keys.boundaries)))

    def plan(self, epoch: int, *, next_batch: int = 0, snapshot: Snapshot | None = None) -> None:
        """Report a boundary (:meth:`boundary`), and wait for the answer."""
        self.boundary(epoch, next_batch=next_batch, snapshot=snapshot)
        self.answered()

    def progress(self, progress: Progress) -> None:
        """Report the pipeline's progress, as the runtime does."""
        self.redis.set(self.keys.runtime, progress.dumps())

    def beat(self, state: str = "working") -> None:
        """Write the runtime's heartbeat, which does not expire here."""
        self.redis.set(self.keys.heartbeat, Heartbeat("run", 1, "host", state).dumps())

    def source(self, stream: str, state: SourceState, error: str | None = None) -> None:
        """Report a state of a stream's source that began a minute ago, as the runtime does."""
        record = json.loads(str(self.redis.hget(self.keys.streams, stream)))
        status = SourceStatus(record["registration"], state, error, time.time() - 60)
        self.redis.hset(self.keys.sources, stream, status.dumps())

    def activate(self, query: str, activation: Activation) -> None:
        """Report a query's activation, as the runtime does."""
        put(self.redis, self.keys, "activations", query, activation.dumps())

    @staticmethod
    def _read(response: httpx.Response, status: int) -> dict[str, Any]:
        assert response.status_code == status, response.text
        if not response.content:
            return {}
        document = json.loads(response.text)
        assert isinstance(document, dict)
        return document


def eventually(condition: Callable[[], bool], what: str) -> None:
    """Wait until ``condition()`` is true."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never happened: {what}"
        time.sleep(0.01)
