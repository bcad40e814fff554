"""Tests of the delay until the loss of a host is noticed, and of the error after the loss
of all.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from random import Random

import pytest

from tests.support.worlds.hosted_up import Feeder, HostedUp, await_all, differences, ready, started
from tests.support.worlds.hosts import Cluster
from tests.support.worlds.processes import wait_until
from tests.support.worlds.strikes import Kind, processes, strike

pytestmark = [pytest.mark.spark, pytest.mark.slow]


def _next_commit(up: HostedUp, seconds: float = 300) -> float:
    """Return the seconds until the next batch commits."""
    base, started = up.committed(), time.monotonic()
    wait_until("a commit", lambda: up.committed() > base, seconds)
    return time.monotonic() - started


def _said(up: HostedUp) -> str:
    return (up.home / "logs" / "runtime.log").read_text()


def test_lost_hosts_are_noticed_and_replaced(world: Cluster, tmp_path: Path) -> None:
    up = ready(world, tmp_path / "up")
    rng = Random(1)
    try:
        with Feeder(world.redis_url, 1, 0.2) as feeder:
            for _ in range(3):
                _next_commit(up)
            # The host's processes end, and their connections are closed.
            rng.choice(world.alive()).kill()
            told = _next_commit(up)
            # The host is silent suddenly; no connection is closed.
            rng.choice(world.alive()).vanish()
            silent = _next_commit(up)
            # The last host ends.
            for host in world.alive():
                host.kill()
            wait_until("a word", lambda: '"event": "no executors"' in _said(up), 60)
            time.sleep(5)
            world.add_worker()
            world.add_worker()
            back = _next_commit(up)
            world.add_worker()
            strike(world, Kind.PYTHON, rng)
            _next_commit(up)
        await_all(up, feeder.ledger)
        up.stop()
        assert not differences(up, feeder.ledger)
    finally:
        world.end_commands()
    sys.stderr.write(f"killed {told:.1f} s, vanished {silent:.1f} s, none {back:.1f} s\n")
    assert told < 60
    assert silent < 120


def test_a_cluster_without_workers_is_waited_for(world: Cluster, tmp_path: Path) -> None:
    for host in world.alive():
        host.kill()
    up = started(world, tmp_path / "up")
    try:
        up.wait("\nready\n")
        up.register()
        up.wait("no-executors")
        assert "Spark has had no executor for 120 s" in up.text()
        for _ in range(3):
            world.add_worker()
        up.await_active()
        with Feeder(world.redis_url, 2, 0.2) as feeder:
            _next_commit(up)
            assert all(processes(host, "Worker") for host in world.alive())
        await_all(up, feeder.ledger)
        up.stop()
        assert not differences(up, feeder.ledger)
    finally:
        world.end_commands()
