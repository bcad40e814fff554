"""Tests of a standby that takes over from a runtime that dies or hangs, with exact results."""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import redis

from anabranch_client.processes.children import Child, session, signal_all
from anabranch_client.processes.pipeline import Pipeline, PipelineSpec, running, spawn_runtime
from anabranch_client.rest.api import Client
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Heartbeat
from anabranch_runtime.faults import Point
from tests.support.worlds.processes import spec_of, wait_until
from tests.support.worlds.steady import differences, fed, register
from tests.support.worlds.up import NAMESPACE, Target, Up, upped

STANDBY = ("--port", "0", "--master", "local[2]", "--standby")


def _ready(up: Up) -> None:
    wait_until("a standby to be ready", up.has_standby)


@pytest.mark.spark
@pytest.mark.slow
def test_a_standby_takes_over(tmp_path: Path) -> None:
    with upped(tmp_path, arguments=STANDBY) as up:
        register(up)
        with fed(up):
            _ready(up)
            standby = {p.pid for p in up.find(Target.STANDBY)}
            assert standby
            up.kill(Target.RUNTIME)
            up.wait_for_commits(3)
            assert {p.pid for p in up.find(Target.DRIVER)} <= standby
            # Another standby is started, and takes over when only the JVM is killed.
            wait_until("another standby", lambda: up.find(Target.STANDBY) != [], 60)
            _ready(up)
            up.kill(Target.JVM)
            up.wait_for_commits(3)
        missing, surplus, right = differences(up)
        assert (missing, surplus) == (0, 0)
        assert right > 50
        assert up.stop() == 0
    assert up.text().count("; the standby takes over") == 2
    assert "it is started again" not in up.text()


@pytest.mark.spark
@pytest.mark.slow
def test_a_standby_that_dies_or_hangs_is_replaced(tmp_path: Path) -> None:
    with upped(tmp_path, arguments=STANDBY) as up:
        register(up)
        with fed(up):
            _ready(up)
            up.kill(Target.STANDBY)
            wait_until("a report", lambda: "the standby ended: it was killed" in up.text())
            _ready(up)
            up.kill(Target.STANDBY, signal.SIGSTOP)
            wait_until("a report", lambda: "the standby ended: it has given no sign" in up.text())
            _ready(up)
            # If the standby hangs, the runtime is restarted.
            up.kill(Target.STANDBY, signal.SIGSTOP)
            wait_until("silence", lambda: not up.has_standby())
            up.kill(Target.RUNTIME)
            up.wait_for_commits(3)
        assert differences(up)[:2] == (0, 0)
        assert up.stop() == 0
    assert "the runtime ended: it was killed (signal 9) [killed]; it is started" in up.text()


@pytest.mark.spark
@pytest.mark.slow
def test_a_standby_follows_a_runtime_that_hangs(tmp_path: Path) -> None:
    with upped(tmp_path, arguments=STANDBY) as up:
        register(up)
        with fed(up):
            _ready(up)
            up.kill(Target.RUNTIME, signal.SIGSTOP)
            up.wait("the runtime ended: it has given no sign of life")
            up.wait_for_commits(3)
        assert differences(up)[:2] == (0, 0)
        assert up.stop() == 0
    assert "; the standby takes over" in up.text()


@dataclass
class Hosts:
    """A pipeline over an object store, whose runtimes have separate state directories."""

    pipeline: Pipeline
    service: Client
    home: Path

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Return a client of the service."""
        yield self.service

    @contextmanager
    def redis(self) -> Iterator[redis.Redis]:
        """Return a connection to Redis."""
        with redis.Redis.from_url(self.pipeline.redis_url, decode_responses=True) as server:
            yield server

    def spec(self, name: str) -> PipelineSpec:
        """Return the start parameters of the runtime on the host ``name``; all write to one results
        folder.
        """
        return replace(self.pipeline.spec, home=self.home / name)

    def start(self, name: str) -> Child:
        """Start a runtime."""
        child = spawn_runtime(self.spec(name), self.pipeline.redis_url, name, "--standby")
        self.pipeline.children.append(child)
        return child

    def beats(self, name: str, key: str) -> bool:
        """Whether the heartbeat at ``key`` is from the runtime ``name``, completely started."""
        with self.redis() as server:
            text = server.get(key)
        found = None if text is None else Heartbeat.loads(str(text))
        return found is not None and (found.run, found.state) == (name, "working")

    def committed(self, name: str) -> list[int]:
        """Return the batches committed by the runtime ``name``, by its log."""
        log = self.spec(name).logs / "runtime.log"
        found = []
        for line in log.read_text().splitlines() if log.exists() else ():
            if line.startswith("{") and '"event": "batch committed"' in line:
                found.append(int(json.loads(line)["batch"]))
        return found


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.parametrize(
    "point",
    [Point.CHOSEN, Point.STORED, Point.STAGED, Point.PUBLISHED, Point.COMMITTING, Point.COMMITTED],
)
def test_a_suspended_driver_commits_nothing_beside_its_successor(
    point: Point, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults, keys = tmp_path / "faults", Keys(NAMESPACE)
    faults.mkdir()
    monkeypatch.setenv("ANABRANCH_FAULTS", str(faults))
    spec = spec_of(
        tmp_path / "home",
        namespace=NAMESPACE,
        mode="live",
        object_store=f"file://{tmp_path}/objects",
        master="local[1]",
    )
    with running(spec) as pipeline, pipeline.start_service() as service:
        hosts = Hosts(pipeline, service, spec.home)
        one = hosts.start("one")
        wait_until("a runtime", lambda: hosts.beats("one", keys.heartbeat))
        register(hosts)
        with fed(hosts):
            wait_until("commits", lambda: len(hosts.committed("one")) > 3)
            hosts.start("two")
            wait_until("a standby", lambda: hosts.beats("two", keys.standby))
            (faults / point).touch()
            held = faults / f"{point}.held"
            wait_until(f"a batch at {point}", lambda: held.exists() and held.read_text() != "")
            signal_all(session(one.pid), signal.SIGSTOP)
            held.unlink()
            wait_until("commits of the standby", lambda: len(hosts.committed("two")) > 3)
            signal_all(session(one.pid), signal.SIGCONT)
            assert one.process.wait(120) == 1
            base = len(hosts.committed("two"))
            wait_until("more commits", lambda: len(hosts.committed("two")) > base + 2)
        assert differences(hosts)[:2] == (0, 0)
        assert one.error()["code"] == "store-taken"
        assert not set(hosts.committed("one")) & set(hosts.committed("two"))
