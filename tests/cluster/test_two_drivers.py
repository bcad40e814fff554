"""Tests of two drivers of one pipeline over one object store: only one runs it, whatever the
faults.
"""

from __future__ import annotations

import json
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.surroundings.network import Host
from tests.support.worlds.hosted_up import Feeder, HostedUp, await_all, differences, started
from tests.support.worlds.hosts import Cluster
from tests.support.worlds.processes import wait_until

pytestmark = [pytest.mark.spark, pytest.mark.slow]


@pytest.fixture
def hosts(world: Cluster) -> Iterator[list[Host]]:
    """Hosts for drivers; a test may end them."""
    made = [world.network.add(f"d{time.monotonic_ns() % 10**8}", private=False) for _ in range(2)]
    yield made
    for host in made:
        if host.alive:
            host.kill()


def _both(
    world: Cluster, hosts: list[Host], folder: Path, *extra: str
) -> tuple[HostedUp, HostedUp]:
    """Start two drivers at the same time; return the one that runs the pipeline, and the refused
    one.
    """
    first = started(world, folder / "one", *extra, host=hosts[0])
    second = HostedUp(world, hosts[1], folder / "two", first.store, extra)
    second.start()
    pair = [first, second]

    def decided() -> bool:
        return sum("store-in-use" in up.text() for up in pair) == 1 and any(
            "\nready\n" in up.text() for up in pair
        )

    wait_until("one to be refused and one to be ready", decided)
    pair.sort(key=lambda up: "store-in-use" in up.text())
    # One of the services has made the token, whichever started first.
    for up in pair:
        up.token_files = tuple(one.home / "admin.token" for one in pair)
    pair[0].register()
    pair[0].await_active()
    return pair[0], pair[1]


def _committed(up: HostedUp) -> list[int]:
    """Return the number of batches that the runtime of ``up`` has committed."""
    log = up.home / "logs" / "runtime.log"
    found = []
    for line in log.read_text().splitlines() if log.exists() else ():
        if line.startswith("{") and '"event": "batch committed"' in line:
            found.append(int(json.loads(line)["batch"]))
    return found


def test_who_is_refused_takes_over_once_the_other_has_vanished(
    world: Cluster, hosts: list[Host], tmp_path: Path
) -> None:
    one, other = _both(world, hosts, tmp_path)
    with Feeder(world.redis_url, 3, 0.3) as feeder:
        wait_until("some commits", lambda: one.committed() > 3)
        assert not _committed(other)
        one.host.vanish()
        wait_until("commits of the other", lambda: len(_committed(other)) > 2, 600)
    await_all(other, feeder.ledger)
    other.stop()
    assert not set(_committed(one)) & set(_committed(other))
    assert not differences(other, feeder.ledger, {one.home: min(_committed(other))})


def test_who_stood_still_while_another_took_over_stops(
    world: Cluster, hosts: list[Host], tmp_path: Path
) -> None:
    # Spark's master considers a stopped driver alive, and keeps its slots.
    world.add_worker()
    one, other = _both(world, hosts, tmp_path, "--spark-conf", "spark.cores.max=2")
    with Feeder(world.redis_url, 4, 0.3) as feeder:
        wait_until("some commits", lambda: one.committed() > 3)
        one.host.signal(signal.SIGSTOP)
        wait_until("commits of the other", lambda: len(_committed(other)) > 2, 600)
        one.host.signal(signal.SIGCONT)
        one.wait("store-taken", 120)
        base = len(_committed(other))
        wait_until("more commits of the other", lambda: len(_committed(other)) > base + 2)
    await_all(other, feeder.ledger)
    other.stop()
    both = set(_committed(one)) & set(_committed(other))
    assert not both
    assert not differences(other, feeder.ledger, {one.home: min(_committed(other))})
