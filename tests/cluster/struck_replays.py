"""``python -m tests.cluster.struck_replays --seeds 0-9``: replays on hosts that are struck.

A random scenario is replayed on hosts that share nothing but an object store, by the command that
people use. Meanwhile hosts are killed, paused, cut off, added and removed, and the store behaves
badly, at random. In the end every row is compared with what DuckDB finds.

Prints a line per strike: what it was, and the seconds from its end to the next commit. A scenario
that failed stays, with its logs, in ``--keep``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.latest import generate_with_latest
from tests.support.scenarios.past import generate_with_past
from tests.support.scenarios.rows import RECORDED
from tests.support.worlds.hosted_replay import HostedReplay, begin
from tests.support.worlds.hosts import CACHE, Cluster, cluster
from tests.support.worlds.replay_check import Verdict
from tests.support.worlds.strikes import WEIGHTS, Kind, draw, strike

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

#: Enough batches for many strikes, and few rows.
SIZE = replace(
    RECORDED, batches=(24, 40), streams=(3, 5), rows=(4, 10), queries=(3, 6), largest=20_000
)
#: Seconds within which a struck pipeline has to commit again.
PATIENCE = 300.0
#: How scenarios are made, by turns.
MAKERS: tuple[Callable[..., Generated], ...] = (generate, generate_with_latest, generate_with_past)


@dataclass(slots=True)
class Struck:
    """A strike, and the seconds from its beginning and from its end to the next commit."""

    kind: Kind
    batch: int
    lasted: float
    recovered: float | None = None


@dataclass(slots=True)
class Outcome:
    """What came of a scenario."""

    seed: int
    verdict: Verdict
    seconds: float
    strikes: list[Struck] = field(default_factory=list)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run; the exit code is the number of seeds that failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="0-4")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--keep", type=Path, required=True)
    parser.add_argument("--only", default="", help="kinds of strikes, by their names in the code")
    options = parser.parse_args(arguments)
    first, _, last = options.seeds.partition("-")
    kinds = [Kind[name] for name in options.only.split(",") if name]
    counts: Counter[str] = Counter()
    failed = []
    with cluster(options.keep / "cluster", options.workers) as world:
        for seed in range(int(first), int(last or first) + 1):
            outcome = run(world, seed, options.keep / str(seed), kinds, options.workers)
            counts.update(str(s.kind) for s in outcome.strikes)
            failed += [seed] if outcome.verdict.problems else []
            sys.stdout.write(f"seed {seed} {outcome.seconds:.0f}s {outcome.verdict}\n")
            sys.stdout.flush()
    sys.stdout.write(json.dumps({"strikes": counts, "failed": failed}) + "\n")
    return len(failed)


def run(
    world: Cluster, seed: int, folder: Path, kinds: Collection[Kind] = (), workers: int = 3
) -> Outcome:
    """Replay the scenario of ``seed`` on hosts that are struck by strikes of ``kinds`` (any)."""
    rng = Random(seed)
    while len(world.alive()) < workers:
        world.add_worker()
    shutil.rmtree(folder, ignore_errors=True)
    made = MAKERS[seed % len(MAKERS)](seed, folder, SIZE)
    # A relative directory is another one for every executor.
    options = ("--cache-directory", CACHE) if seed % 2 else ()
    replay, started = begin(world, made.path, *options), time.monotonic()
    found = Outcome(seed, Verdict(0, 0, ()), 0.0)
    weights = {kind: WEIGHTS[kind] for kind in kinds} if kinds else WEIGHTS
    try:
        _strike_while(world, replay, rng, weights, found)
        found.verdict = replay.verdict(made.queries, PATIENCE)
    except AssertionError as error:
        found.verdict = Verdict(0, 0, (f"{error}: {replay.text[-2000:]}",))
    finally:
        replay.close()
        world.behave()
    found.seconds = time.monotonic() - started
    return found


def _strike_while(
    world: Cluster,
    replay: HostedReplay,
    rng: Random,
    weights: dict[Kind, float],
    found: Outcome,
) -> None:
    committed = replay.await_commits(1, PATIENCE)
    while replay.process.poll() is None:
        time.sleep(rng.uniform(0, 1.5))
        kind, before = draw(rng, weights), time.monotonic()
        strike(world, kind, rng)
        after = time.monotonic()
        one = Struck(kind, committed, round(after - before, 2))
        found.strikes.append(one)
        wanted = replay.committed() + rng.choice((1, 1, 2))
        committed = replay.await_commits(wanted, PATIENCE)
        one.recovered = round(time.monotonic() - after, 2)
        sys.stdout.write(json.dumps({"seed": found.seed, "committed": committed, **asdict(one)}))
        sys.stdout.write("\n")
        sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
