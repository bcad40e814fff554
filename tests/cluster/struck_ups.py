"""``python -m tests.cluster.struck_ups --strikes 50 --seed 1``: a live pipeline on struck hosts.

``anabranch up`` runs on a host of its own, over workers that share nothing with it but an object
store, and is fed all the while. At random hosts are killed, paused and cut off, runtimes and whole
driver's hosts too, the store goes away for a minute, a second driver is started on it, queries come
and go while a host dies. Nothing but ``up`` is started again. In the end every query's results must
be what DuckDB finds in the rows that were written: none lost, none doubled.

Prints a line per strike: what it was, and the seconds from its end to the next commit.
"""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.support.worlds.hosted_up import (
    AWAY,
    Feeder,
    HostedUp,
    Ledger,
    await_all,
    differences,
    ready,
)
from tests.support.worlds.hosts import CACHE, Cluster, cluster
from tests.support.worlds.processes import wait_until
from tests.support.worlds.strikes import WEIGHTS, Kind, strike

if TYPE_CHECKING:
    from collections.abc import Sequence

#: Seconds within which a struck pipeline has to commit again; a lease lasts for one minute, and
#: silence is noticed after two.
PATIENCE = 420.0
#: Seconds of a pause that is longer than any lease.
LONG_PAUSE = 90.0
#: Seconds between two rows of a stream.
PACE = 0.25


class Blow(StrEnum):
    """What happens to the driver's side, and to several at once."""

    RUNTIME = "runtime killed"
    UP = "driver's host killed"
    LONG = "driver paused for 90 s"
    WORKERS_LONG = "host paused for 90 s"
    AWAY = "store away for a minute"
    SECOND = "a second driver"
    REGISTERED = "registration while a host dies"
    RESCALED = "rescale while a host dies"
    NOBODY = "all workers gone for a while"


BLOWS: dict[Blow, float] = {
    Blow.RUNTIME: 3,
    Blow.UP: 2,
    Blow.LONG: 0.4,
    Blow.WORKERS_LONG: 0.4,
    Blow.AWAY: 0.6,
    Blow.SECOND: 1,
    Blow.REGISTERED: 3,
    Blow.RESCALED: 2,
    Blow.NOBODY: 1,
}


@dataclass(slots=True)
class Struck:
    """A strike, how long it lasted, and the seconds from its end to the next commit."""

    number: int
    kind: str
    lasted: float
    recovered: float | None = None


@dataclass(slots=True)
class Outcome:
    """What came of a run; ``wrong`` is empty where all results are exact."""

    strikes: list[Struck] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    results: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code says whether all was exact."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--strikes", type=int, default=30)
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--only", default="", help="names of strikes, in the code")
    options = parser.parse_args(arguments)
    names = [name for name in options.only.split(",") if name]
    only = [Kind[n] if n in Kind.__members__ else Blow[n] for n in names]
    with cluster(options.keep / "cluster", options.workers) as world:
        outcome = run(world, options.keep / "up", options.seed, options.strikes, only)
    counts = Counter(one.kind for one in outcome.strikes)
    summary = {"strikes": counts, "wrong": outcome.wrong, "results": outcome.results}
    sys.stdout.write(json.dumps(summary) + "\n")
    return 1 if outcome.wrong else 0


def run(
    world: Cluster, home: Path, seed: int, strikes: int, only: Sequence[Kind | Blow] = ()
) -> Outcome:
    """Strike a pipeline so often; ``only`` by these, where there are any."""
    rng, outcome = Random(seed), Outcome()
    weights: dict[Kind | Blow, float] = dict(WEIGHTS.items())
    weights.update(BLOWS.items())
    weights = {kind: weights[kind] for kind in only} if only else weights
    extra = ("--cache-directory", CACHE) if seed % 2 else ()
    up = ready(world, home, *extra)
    try:
        with Feeder(world.redis_url, seed, PACE) as feeder:
            _await(up, 1)
            for number in range(strikes):
                time.sleep(rng.uniform(0, 2))
                kind, before = (
                    rng.choices(list(weights), list(weights.values()))[0],
                    time.monotonic(),
                )
                if isinstance(kind, Kind):
                    strike(world, kind, rng)
                else:
                    _blow(world, up, kind, rng)
                after = time.monotonic()
                one = Struck(number, str(kind), round(after - before, 2))
                outcome.strikes.append(one)
                _await(up, 1)
                one.recovered = round(time.monotonic() - after, 2)
                sys.stdout.write(json.dumps({"seed": seed, "at": up.committed(), **asdict(one)}))
                sys.stdout.write("\n")
                sys.stdout.flush()
        _settle(world, up, feeder.ledger, outcome)
    finally:
        world.end_commands()
        world.behave()
    return outcome


def _settle(world: Cluster, up: HostedUp, ledger: Ledger, outcome: Outcome) -> None:
    world.behave()
    await_all(up, ledger, PATIENCE)
    up.stop()
    (up.home / "ledger.json").write_text(json.dumps(ledger.rows))
    outcome.wrong = differences(up, ledger)
    outcome.results = sum(len(up.results(q)) for q in ("ab", "aa", "abc"))


def _await(up: HostedUp, commits: int) -> None:
    base = up.committed()

    def done() -> bool:
        assert up.process is not None
        assert up.process.poll() is None, up.text()[-3000:]
        return up.committed() >= base + commits

    wait_until(f"{commits} more commits after {base}", done, PATIENCE)


def _blow(world: Cluster, up: HostedUp, kind: Blow, rng: Random) -> None:
    match kind:
        case Blow.RUNTIME:
            up.kill_runtime()
        case Blow.UP:
            # As a machine that starts again: all that ran there has gone, what it wrote is there.
            world.end_commands()
            assert up.process is not None
            up.process.wait(60)
            up.start()
        case Blow.LONG:
            _pause(world, "driver")
        case Blow.WORKERS_LONG:
            _pause(world, rng.choice(world.alive()).name)
        case Blow.AWAY:
            world.behave(away=True)
            time.sleep(60)
            world.behave()
        case Blow.SECOND:
            _second(world, up)
        case Blow.REGISTERED:
            victim = rng.choice(world.alive())
            with suppress(*AWAY):
                up.change()
            time.sleep(rng.uniform(0, 3))
            victim.kill()
            with suppress(*AWAY):
                up.change()
            world.add_worker()
        case Blow.RESCALED:
            victim = rng.choice(world.alive())
            world.add_worker()
            time.sleep(rng.uniform(0, 8))
            victim.kill()
        case Blow.NOBODY:
            for victim in world.alive():
                victim.kill()
            time.sleep(rng.choice((1, 20)))
            for _ in range(2):
                world.add_worker()


def _pause(world: Cluster, name: str) -> None:
    host = world.network.hosts[name]
    host.signal(signal.SIGSTOP)
    time.sleep(LONG_PAUSE)
    host.signal(signal.SIGCONT)


def _second(world: Cluster, up: HostedUp) -> None:
    """Another host's ``up`` for the same pipeline, which has to be refused."""
    host = world.network.add(f"other{time.monotonic_ns() % 10**6}", private=False)
    other = HostedUp(world, host, up.home.with_name(host.name), up.store)
    other.start()
    try:
        wait_until("a refusal", lambda: "store-in-use" in other.text(), 120)
    finally:
        host.kill()


if __name__ == "__main__":
    sys.exit(main())
