"""Strikes (faults) on the hosts of a cluster: kills, pauses, broken or slow links, a failing store.

A strike is drawn by a seed and carried out by :func:`strike`, which returns when it is over: a
paused host goes on, a disconnected one is connected, a dead one has been replaced. :class:`Strikes`
carries out one after the other upon something that commits, and measures the time to the next
commit.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from random import Random
from typing import Generic, TypeVar

import psutil

from tests.support.surroundings.network import Host
from tests.support.worlds.hosts import Cluster
from tests.support.worlds.processes import wait_until

#: Seconds (from, to) of a slow link, and of a failing store.
_BAD = (4.0, 12.0)


class Kind(StrEnum):
    """Kind of a strike."""

    WORKER = "Spark's worker killed"
    EXECUTOR = "executor killed"
    PYTHON = "python worker killed"
    HOST = "host killed"
    VANISHED = "host vanished"
    CUT = "link cut"
    BAD_LINK = "link slow and lossy"
    PAUSED = "host paused"
    DRIVER_PAUSED = "driver's host paused"
    REDIS_PAUSED = "redis's host paused"
    STORE_SLOW = "store slow"
    STORE_FAILS = "store fails one in ten"
    ADDED = "host added"
    REMOVED = "host removed"


#: Weights of the kinds when drawing. Kinds whose effect is noticed late have low weights.
WEIGHTS: dict[Kind, float] = {
    Kind.WORKER: 2,
    Kind.EXECUTOR: 4,
    Kind.PYTHON: 5,
    Kind.HOST: 2,
    Kind.VANISHED: 0.5,
    Kind.CUT: 3,
    Kind.BAD_LINK: 2,
    Kind.PAUSED: 3,
    Kind.DRIVER_PAUSED: 2,
    Kind.REDIS_PAUSED: 1,
    Kind.STORE_SLOW: 2,
    Kind.STORE_FAILS: 3,
    Kind.ADDED: 1.5,
    Kind.REMOVED: 1.5,
}
#: Errors of a strike or of the wait for a commit: a timeout, or a victim that has ended already.
#: Results so far are compared nevertheless.
FAILURES = (AssertionError, OSError, subprocess.SubprocessError, psutil.Error)
#: A type whose members are kinds of strikes.
K = TypeVar("K", bound=StrEnum)
#: Parts of the command lines that identify processes by role.
_WORKER, _EXECUTOR = "org.apache.spark.deploy.worker.Worker", "CoarseGrainedExecutorBackend"
_PYTHON = "anabranch_runtime.spark.daemon"


@dataclass(slots=True)
class Struck:
    """A strike, the commits before it, its duration, and the seconds from its end to the next
    commit; None: there was no commit.
    """

    kind: str
    at: int
    lasted: float
    recovered: float | None = None


@dataclass(slots=True)
class Strikes(Generic[K]):
    """Strikes on a system that commits, one after the other.

    Attributes:
        seed: of the draws. weights: how often each kind is drawn.
        carry_out: a strike; returns when it is over.
        committed: how many commits there have been.
        again: returns once there has been a commit more.
    """

    seed: int
    weights: Mapping[K, float]
    carry_out: Callable[[K, Random], None]
    committed: Callable[[], int]
    again: Callable[[], object]
    found: list[Struck] = field(default_factory=list)
    rng: Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = Random(self.seed)

    def one(self, pause: float) -> None:
        """After at most ``pause`` seconds draw a strike, carry it out, wait for a commit, and print
        a line about it.

        Raises:
            AssertionError: no commit has come; the line is printed all the same. Or others of
                :data:`FAILURES`.
        """
        time.sleep(self.rng.uniform(0, pause))
        kind = self.rng.choices(list(self.weights), list(self.weights.values()))[0]
        before, at = time.monotonic(), self.committed()
        self.carry_out(kind, self.rng)
        after = time.monotonic()
        one = Struck(str(kind), at, round(after - before, 2))
        self.found.append(one)
        try:
            self.again()
            one.recovered = round(time.monotonic() - after, 2)
        finally:
            tell({"seed": self.seed, "committed": self.committed(), **asdict(one)})


def tell(line: Mapping[str, object]) -> None:
    """Print a line of JSON, and flush."""
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()


def counts(found: Iterable[Struck]) -> dict[str, int]:
    """Return how often each kind has struck."""
    return dict(Counter(one.kind for one in found))


def parser(about: str | None) -> argparse.ArgumentParser:
    """Return a parser with the common command-line options of programs that carry out strikes."""
    found = argparse.ArgumentParser(description=about)
    found.add_argument("--workers", type=int, default=3)
    found.add_argument("--keep", type=Path, required=True, help="folder of logs and of failures")
    found.add_argument("--only", default="", help="kinds of strikes, by their names in the code")
    return found


def only(weights: Mapping[K, float], names: str) -> Mapping[K, float]:
    """The weights of the kinds in ``names`` (separated by commas); all weights if it is empty."""
    wanted = [name for name in names.split(",") if name]
    known = {kind.name: kind for kind in weights}
    return {known[name]: weights[known[name]] for name in wanted} or weights


def strike(cluster: Cluster, kind: Kind, rng: Random) -> None:
    """Carry out a strike on a cluster, and wait until it is over."""
    _HOW[kind](cluster, rng)


def processes(host: Host, role: str) -> list[psutil.Process]:
    """Return the processes of a host whose command lines contain ``role``."""
    found = []
    for process in host.processes():
        with suppress(psutil.Error):
            if any(role in part for part in process.cmdline()):
                found.append(process)
    return found


def _victim(cluster: Cluster, rng: Random) -> Host:
    return rng.choice(cluster.alive())


def _kill(cluster: Cluster, rng: Random, role: str) -> Host:
    """Kill a random process of that role in the cluster."""
    found: list[tuple[Host, psutil.Process]] = []

    def there() -> bool:
        found.extend((h, p) for h in cluster.alive() for p in processes(h, role))
        return bool(found)

    wait_until(f"a process of {role}", there, 300)
    host, process = rng.choice(found)
    with suppress(psutil.NoSuchProcess):
        process.send_signal(signal.SIGKILL)
    return host


def _worker(cluster: Cluster, rng: Random) -> None:
    """Kill Spark's worker, and restart it as a supervisor would."""
    host = _kill(cluster, rng, _WORKER)
    time.sleep(rng.uniform(0, 3))
    cluster.start_worker(host)


def _host(cluster: Cluster, rng: Random) -> None:
    _victim(cluster, rng).kill()
    cluster.add_worker()


def _vanished(cluster: Cluster, rng: Random) -> None:
    """Replace a host that ends without closing its connections."""
    _victim(cluster, rng).vanish()
    cluster.add_worker()


def _cut(cluster: Cluster, rng: Random) -> None:
    host = _victim(cluster, rng)
    host.disconnect()
    time.sleep(rng.choice((1, 3, 8)))
    host.connect()


def _bad_link(cluster: Cluster, rng: Random) -> None:
    host = _victim(cluster, rng)
    host.worsen(0.2, 0.05)
    time.sleep(rng.uniform(*_BAD))
    host.mend()


def _paused(cluster: Cluster, rng: Random, name: str | None = None, seconds: float = 0.0) -> None:
    host = _victim(cluster, rng) if name is None else cluster.network.hosts[name]
    seconds = seconds or rng.choice((1, 4, 12))
    host.signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        host.signal(signal.SIGCONT)


def _store(cluster: Cluster, rng: Random, **how: float) -> None:
    cluster.behave(**how)
    time.sleep(rng.uniform(*_BAD))
    cluster.behave()


def _added(cluster: Cluster, rng: Random) -> None:
    if len(cluster.alive()) < 4:
        cluster.add_worker()
    else:
        _removed(cluster, rng)


def _removed(cluster: Cluster, rng: Random) -> None:
    """Replace a host after asking its processes to end."""
    if len(cluster.alive()) < 2:
        cluster.add_worker()
        return
    host = _victim(cluster, rng)
    for process in processes(host, _WORKER):
        with suppress(psutil.NoSuchProcess):
            process.terminate()
    time.sleep(2)
    host.kill()


_HOW: dict[Kind, Callable[[Cluster, Random], None]] = {
    Kind.WORKER: _worker,
    Kind.EXECUTOR: lambda cluster, rng: _drop(_kill(cluster, rng, _EXECUTOR)),
    Kind.PYTHON: lambda cluster, rng: _drop(_kill(cluster, rng, _PYTHON)),
    Kind.HOST: _host,
    Kind.VANISHED: _vanished,
    Kind.CUT: _cut,
    Kind.BAD_LINK: _bad_link,
    Kind.PAUSED: _paused,
    Kind.DRIVER_PAUSED: partial(_paused, name="driver"),
    Kind.REDIS_PAUSED: partial(_paused, name="redis"),
    Kind.STORE_SLOW: partial(_store, delay=0.5),
    Kind.STORE_FAILS: partial(_store, fail=0.1),
    Kind.ADDED: _added,
    Kind.REMOVED: _removed,
}


def _drop(_: object) -> None:
    """Do nothing: there is nothing to undo."""
