"""``python -m tests.cluster.struck_ups --strikes 50 --seed 1``: a live pipeline on hosts with
random faults (strikes).

``anabranch up`` runs on a host of its own, over workers that share nothing with it but an object
store, and is fed all the while. At random hosts are killed, paused and cut off, runtimes and whole
driver's hosts too, the store goes away for a minute, a second driver is started on it, queries come
and go while a host dies. Nothing but ``up`` is started again. In the end every query's results must
be what DuckDB finds in the rows that were written: none lost, none doubled.

Prints a line per strike: what it was, and the seconds from its end to the next commit.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from random import Random

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
from tests.support.worlds.strikes import (
    FAILURES,
    WEIGHTS,
    Kind,
    Strikes,
    Struck,
    counts,
    only,
    parser,
    strike,
    tell,
)

#: Maximum seconds until a struck pipeline commits again; a lease lasts one minute, and silence is
#: noticed after two.
PATIENCE = 420.0
#: Seconds of a pause that exceeds any lease.
LONG_PAUSE = 90.0
#: Seconds between two rows of a stream.
PACE = 0.25
#: Maximum seconds between two strikes.
PAUSE = 2.0


class Blow(StrEnum):
    """Kind of a strike on the driver's side, or on several hosts at once."""

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


#: Weights of the strikes of both kinds.
ALL: dict[Kind | Blow, float] = dict((*WEIGHTS.items(), *BLOWS.items()))


@dataclass(slots=True)
class Outcome:
    """Outcome of a run under strikes.

    Attributes:
        wrong: query -> difference from the exact results; empty if all are exact.
        ended: reason for which strikes ended early, if they did.
    """

    strikes: list[Struck] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    ended: str = ""
    results: int = 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit code says whether all results were exact."""
    known = parser(__doc__)
    known.add_argument("--seed", type=int, default=0)
    known.add_argument("--strikes", type=int, default=30)
    options = known.parse_args(arguments)
    kinds = only(ALL, options.only)
    with cluster(options.keep / "cluster", options.workers) as world:
        outcome = run(
            world, options.keep / "up", options.seed, options.strikes, kinds, options.workers
        )
    summary = {"strikes": counts(outcome.strikes), "results": outcome.results}
    tell({**summary, "ended": outcome.ended, "wrong": outcome.wrong})
    return 1 if outcome.wrong or outcome.ended else 0


def run(
    world: Cluster,
    home: Path,
    seed: int,
    number: int,
    kinds: Mapping[Kind | Blow, float] = ALL,
    workers: int = 3,
) -> Outcome:
    """Strike a pipeline ``number`` times, by strikes of ``kinds``. If it does not commit in time,
    wait as long again, then compare its results nevertheless.
    """
    outcome = Outcome()
    world.fill(workers)
    extra = ("--cache-directory", CACHE) if seed % 2 else ()
    up = ready(world, home, *extra)

    def carry_out(kind: Kind | Blow, rng: Random) -> None:
        if isinstance(kind, Kind):
            strike(world, kind, rng)
        else:
            _blow(world, up, kind, rng)

    strikes = Strikes(seed, kinds, carry_out, up.committed, lambda: _await(up, 1), outcome.strikes)
    try:
        with Feeder(world.redis_url, seed, PACE) as feeder:
            _await(up, 1)
            try:
                for _ in range(number):
                    strikes.one(PAUSE)
            except FAILURES as error:
                outcome.ended = _told(up, error)
        _settle(world, up, feeder.ledger, outcome)
    finally:
        world.end_commands()
        world.behave()
    return outcome


def _settle(world: Cluster, up: HostedUp, ledger: Ledger, outcome: Outcome) -> None:
    """Compare the results after all strikes with the expected ones."""
    world.behave()
    try:
        await_all(up, ledger, PATIENCE)
        up.stop()
    except FAILURES as error:
        outcome.ended += _told(up, error)
        world.end_commands()
    (up.home / "ledger.json").write_text(json.dumps(ledger.rows))
    outcome.wrong = differences(up, ledger)
    outcome.results = sum(len(up.results(q)) for q in ("ab", "aa", "abc"))


def _told(up: HostedUp, error: Exception) -> str:
    return f"{error}: {up.text()[-3000:]}\n"


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
            # As when a machine restarts: its processes have ended, its files remain.
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
    """Start ``up`` for the same pipeline on another host, which must be refused."""
    host = world.network.add(f"other{time.monotonic_ns() % 10**6}", private=False)
    other = HostedUp(world, host, up.home.with_name(host.name), up.store)
    other.start()
    try:
        wait_until("a refusal", lambda: "store-in-use" in other.text(), PATIENCE)
    finally:
        host.kill()


if __name__ == "__main__":
    sys.exit(main())
