"""``python -m tests.cluster.struck_replays --seeds 0-9``: replays on hosts with random faults
(strikes).

A random scenario is replayed on hosts that share nothing but an object store, by the command that
people use. Meanwhile hosts are killed, paused, cut off, added and removed, and the store behaves
badly, at random. In the end every row is compared with what DuckDB finds.

Prints a line per strike: what it was, and the seconds from its end to the next commit. A scenario
that failed stays, with its logs, in ``--keep``.
"""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.latest import generate_with_latest
from tests.support.scenarios.past import generate_with_past
from tests.support.scenarios.rows import RECORDED
from tests.support.worlds.hosted_replay import begin
from tests.support.worlds.hosts import CACHE, Cluster, cluster
from tests.support.worlds.replay_check import Verdict
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

#: Enough batches for many strikes, and few rows.
SIZE = replace(
    RECORDED, batches=(24, 40), streams=(3, 5), rows=(4, 10), queries=(3, 6), largest=20_000
)
#: Maximum seconds until a struck pipeline commits again.
PATIENCE = 300.0
#: Maximum seconds between two strikes.
PAUSE = 1.5
#: Ways to make a scenario, used in turn.
MAKERS: tuple[Callable[..., Generated], ...] = (generate, generate_with_latest, generate_with_past)


@dataclass(slots=True)
class Outcome:
    """Outcome of a scenario under strikes."""

    seed: int
    verdict: Verdict
    seconds: float
    strikes: list[Struck] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit code is the number of seeds that failed."""
    known = parser(__doc__)
    known.add_argument("--seeds", default="0-4")
    options = known.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    kinds = only(WEIGHTS, options.only)
    found: list[Struck] = []
    failed = []
    with cluster(options.keep / "cluster", options.workers) as world:
        for seed in range(int(first), int(last or first) + 1):
            outcome = run(world, seed, options.keep / str(seed), kinds, options.workers)
            found += outcome.strikes
            failed += [seed] if outcome.verdict.problems else []
            verdict, seconds = str(outcome.verdict), round(outcome.seconds)
            tell({"seed": seed, "seconds": seconds, "verdict": verdict})
    tell({"strikes": counts(found), "failed": failed})
    return len(failed)


def run(
    world: Cluster,
    seed: int,
    folder: Path,
    kinds: Mapping[Kind, float] = WEIGHTS,
    workers: int = 3,
) -> Outcome:
    """Replay the scenario of ``seed`` on hosts that suffer strikes of ``kinds``."""
    world.fill(workers)
    shutil.rmtree(folder, ignore_errors=True)
    made = MAKERS[seed % len(MAKERS)](seed, folder, SIZE)
    # A relative directory is a different one for each executor.
    options = ("--cache-directory", CACHE) if seed % 2 else ()
    replay, started = begin(world, made.path, *options), time.monotonic()
    found = Outcome(seed, Verdict(0, 0, ()), 0.0)

    def again() -> None:
        wanted = replay.committed() + strikes.rng.choice((1, 1, 2))
        replay.await_commits(wanted, PATIENCE)

    strikes = Strikes(seed, kinds, partial(strike, world), replay.committed, again, found.strikes)
    try:
        replay.await_commits(1, PATIENCE)
        while replay.process.poll() is None:
            strikes.one(PAUSE)
        found.verdict = replay.verdict(made.queries, PATIENCE)
    except FAILURES as error:
        found.verdict = Verdict(0, 0, (f"{error}: {replay.text[-2000:]}",))
    finally:
        replay.close()
        world.behave()
    found.seconds = time.monotonic() - started
    return found


if __name__ == "__main__":
    sys.exit(main())
