"""Several service processes over one Redis, with faults of their leader.

The runtime is played: whenever an epoch is published it ends the epoch before, as a replay would.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
from redis import Redis

import anabranch_contract
import anabranch_planner
import anabranch_service
from anabranch_client.processes.children import free_port
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Boundary
from tests.support.worlds.processes import wait_until

#: Maximum seconds of a service's start on a busy machine.
PATIENCE = 60.0


@dataclass(slots=True)
class Replica:
    """One service replica: a port, and the successive processes that have listened there."""

    redis_url: str
    namespace: str
    lease_seconds: float
    log: Path
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The replica's address."""
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start the replica's process; it may not listen yet."""
        roots = (anabranch_contract, anabranch_planner, anabranch_service)
        path = os.pathsep.join(str(Path(m.__path__[0]).parent) for m in roots)
        command = [sys.executable, "-m", "anabranch_service", "--port", str(self.port)]
        options = ["--mode", "step", "--namespace", self.namespace]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *options, "--lease-seconds", str(self.lease_seconds)],
                env={**os.environ, "PYTHONPATH": path, "ANABRANCH_REDIS_URL": self.redis_url},
                stderr=log,
            )

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal; if it is SIGKILL, wait for the end."""
        assert self.process is not None
        self.process.send_signal(number)
        if number is signal.SIGKILL:
            self.process.wait()

    def is_up(self) -> bool:
        """Whether the replica answers requests now."""
        try:
            return httpx.get(f"{self.url}/healthz", timeout=0.5, verify=False).is_success
        except httpx.HTTPError:
            return False

    def lines(self) -> list[dict[str, Any]]:
        """Return the replica's log records, without a killed process's incomplete last line."""
        found = []
        for line in self.log.read_text().splitlines():
            try:
                found.append(json.loads(line))
            except json.JSONDecodeError:
                continue
        return found


class Replicas:
    """Two services, a simulated runtime that ends epochs continuously, and a client that registers
    streams at any service that answers.

    Attributes:
        seen: epoch -> its ruleset as the runtime saw it first.
        streams, queries: the names of those whose registration was acknowledged.
    """

    def __init__(self, replicas: list[Replica]) -> None:
        self.replicas = replicas
        url, self.keys = replicas[0].redis_url, Keys(replicas[0].namespace)
        self.redis = Redis.from_url(url, decode_responses=True)
        self.seen: dict[int, str] = {}
        self.streams: list[str] = []
        self.queries: list[str] = []
        self._stop = threading.Event()
        self._error: BaseException | None = None

    def leader(self) -> Replica:
        """Return the replica that leads, or led last."""
        address = str(self.redis.hget(self.keys.leader, "address"))
        return next(r for r in self.replicas if address.endswith(f":{r.port}"))

    def token(self) -> int:
        """Return the number of the newest leader's term."""
        return int(str(self.redis.hget(self.keys.leader, "token") or 0))

    def wait_for_term(self, token: int) -> None:
        """Wait until leader's term ``token``, or a later one, has begun."""
        wait_until("another leads", lambda: self.token() >= token, PATIENCE)

    def check(self) -> None:
        """Raise the errors of the simulated runtime or of the client."""
        if self._error is not None:
            raise self._error

    def play_runtime(self) -> None:
        """Simulate the runtime: end each epoch when the ruleset of the next is there."""
        epoch = -1
        while not self._stop.is_set():
            self.redis.rpush(self.keys.boundaries, Boundary(epoch, 4 * (epoch + 1)).dumps())
            self.redis.xadd(self.keys.reports, {"of": "boundary"}, maxlen=1, approximate=False)
            epoch += 1
            while not self._stop.is_set():
                text = self.redis.get(self.keys.ruleset(epoch))
                if text is not None:
                    self.seen[epoch] = str(text)
                    break
                time.sleep(0.005)

    def play_client(self) -> None:
        """Simulate the client: register streams and queries at any service that answers."""
        number = 0
        while not self._stop.is_set():
            replica = self.replicas[number % len(self.replicas)]
            name = f"n{number}"
            number += 1
            try:
                with httpx.Client(base_url=replica.url, timeout=1, verify=False) as http:
                    if number % 10 or len(self.queries) >= MOST_QUERIES:
                        body: dict[str, Any] = {"name": name, "columns": {"k": "bigint"}}
                        if http.post("/v1/streams", json=body).is_success:
                            self.streams.append(name)
                    elif len(self.streams) >= 2:
                        left, right = self.streams[:2]
                        sql = f"SELECT a.k FROM {left} a JOIN {right} b ON a.k = b.k"
                        body = {"id": name, "sql": f"{sql} WHERE a.k > {number}"}
                        if http.post("/v1/queries", json=body).is_success:
                            self.queries.append(name)
            except httpx.HTTPError:
                pass
            time.sleep(0.02)

    def _guard(self, play: Any) -> None:
        try:
            play()
        except BaseException as cause:  # noqa: BLE001 - raised in the test by check()
            self._error = cause

    @contextmanager
    def playing(self) -> Iterator[None]:
        """Context in which runtime and client are simulated."""
        threads = [
            threading.Thread(target=self._guard, args=(play,), daemon=True)
            for play in (self.play_runtime, self.play_client)
        ]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self._stop.set()
            for thread in threads:
                thread.join(10)


#: Maximum number of registered queries, so that plans are made quickly.
MOST_QUERIES = 6


@contextmanager
def two_services(redis_url: str, namespace: str, home: Path, lease: float) -> Iterator[Replicas]:
    """Context with two running services over one Redis."""
    replicas = [Replica(redis_url, namespace, lease, home / f"{n}.log") for n in range(2)]
    with ExitStack() as stack:
        for replica in replicas:
            replica.start()
            stack.callback(end, replica)
        for replica in replicas:
            wait_until("a service starts", replica.is_up, PATIENCE)
        found = Replicas(replicas)
        stack.callback(found.redis.close)
        yield found


def end(replica: Replica) -> None:
    """Kill the process of a replica, whatever its state."""
    replica.send(signal.SIGKILL)
