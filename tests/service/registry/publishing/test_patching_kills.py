"""The service is killed with SIGKILL at every message that it sends to Redis while it publishes an
epoch as a patch, and another one goes on: every epoch is published once, whole, and never changes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from pathlib import Path

import httpx
import pytest
from redis import Redis

from anabranch_contract.packed import unpack
from anabranch_contract.plans import patches
from anabranch_contract.plans.ruleset import RulesetId, digest
from anabranch_contract.protocol.progress import Mode
from anabranch_runtime.control import Control
from anabranch_service.settings import ServiceSettings
from tests.service.api.test_process import environment
from tests.service.conftest import PAIR, STREAMS
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.severed import Severed
from tests.support.worlds.service import Service, eventually

#: Number of initial queries: enough for plans to be made in a separate process.
QUERIES = 30
#: Epochs published after the kill: in full, then as a patch of it.
LATER = 3


@contextmanager
def running(url: str, namespace: str, port_file: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Start a service process that waits for a lost leader only as long as necessary."""
    command = [
        *(sys.executable, "-m", "anabranch_service", "--port", "0", "--mode", "step"),
        *("--port-file", str(port_file), "--namespace", namespace, "--parallelism", "2"),
        *("--lease-seconds", "0.5", "--allow-path", "/"),
    ]
    port_file.unlink(missing_ok=True)
    process = subprocess.Popen(
        command,
        env={**environment(), "ANABRANCH_REDIS_URL": url},
        stderr=subprocess.DEVNULL,
    )
    try:
        eventually(lambda: port_file.exists() or process.poll() is not None, "it listens")
        yield process
    finally:
        process.kill()
        process.wait()


class World:
    """Redis, settings of the services, and the epochs published so far."""

    def __init__(self, url: str, namespace: str) -> None:
        self.settings = ServiceSettings(
            redis_url=url, namespace=namespace, mode=Mode.STEP, access=OPEN
        )
        self.redis = Redis.from_url(url, decode_responses=True)
        self.control = Control(url, namespace)
        self.added = 0
        #: Epoch -> (what Redis stores of it, its document).
        self.known: dict[int, tuple[str, str]] = {}

    @contextmanager
    def at(self, port_file: Path) -> Iterator[Service]:
        port = int(port_file.read_text())
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as http:
            yield Service(replace(self.settings, port=port), http, self.redis)

    def add(self, service: Service, more: int = 1) -> None:
        for _ in range(more):
            sql = f"{PAIR} WHERE o.order_id > {self.added}"
            service.post("/v1/queries", {"id": f"q{self.added:02}", "sql": sql})
            self.added += 1

    def look(self, service: Service) -> list[int]:
        """Check that published epochs are unchanged and complete; record new ones."""
        epochs = [e for e in range(20) if self.redis.exists(service.keys.ruleset(e))]
        assert epochs == list(range(len(epochs)))
        for epoch in epochs:
            text = self.control.ruleset_text(RulesetId(epoch))
            kept = str(self.redis.get(service.keys.ruleset(epoch)))
            record = service.get(f"/v1/epochs/{epoch}")
            assert record["ruleset_digest"] == digest(text)
            assert self.control.ruleset(RulesetId(epoch)).epoch == epoch
            assert self.known.setdefault(epoch, (kept, text)) == (kept, text)
        return epochs


def killed_once(
    redis: str, folder: Path, name: str, due: Callable[[int, bytes], bool], *, after: bool
) -> bool:
    """Kill the service at the given message, and continue; return whether there was one."""
    world, port_file = World(redis, name), folder / name
    severed = Severed(redis)
    with running(severed.url, name, port_file) as first, world.at(port_file) as service:
        service.beat()
        for stream in STREAMS:
            service.post("/v1/streams", stream)
        world.add(service, QUERIES)
        service.plan(-1)
        world.add(service)
        assert world.look(service) == [0]
        severed.arm(first.kill, due, after=after)
        service.boundary(0)

        def over() -> bool:
            return first.poll() is not None or (severed.armed and service.is_answered())

        eventually(over, "it is killed, or has published")
        struck = first.poll() is not None
    with running(redis, name, port_file), world.at(port_file) as service:
        eventually(lambda: service.http.get("/readyz").status_code == 200, "another one leads")
        service.answered()
        assert world.look(service) == [0, 1]
        for epoch in range(1, 1 + LATER):
            world.add(service)
            service.plan(epoch)
            assert world.look(service) == list(range(epoch + 2))
        newest = world.control.ruleset(RulesetId(1 + LATER))
        assert [str(q.id) for q in newest.queries] == [f"q{n:02}" for n in range(world.added)]
        assert patches.is_patch(unpack(world.known[1 + LATER][0]))
    severed.close()
    return struck


@pytest.mark.parametrize(
    "after",
    [
        pytest.param(False, marks=pytest.mark.slow, id="before"),
        pytest.param(True, id="after"),
    ],
)
def test_killed_as_it_publishes(after: bool, redis: str, tmp_path: Path) -> None:
    name = f"publishes-{after}"

    def due(_: int, data: bytes) -> bool:
        return f"{name}:ruleset:1".encode() in data and b"EVALSHA" in data

    assert killed_once(redis, tmp_path, name, due, after=after)


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
def test_killed_at_every_message(after: bool, redis: str, tmp_path: Path) -> None:
    def at(number: int) -> bool:
        name = f"n{number}-{after}"
        return killed_once(redis, tmp_path, name, lambda n, _: n == number, after=after)

    assert next(number for number in count(1) if not at(number)) > 5
