"""``python -m tests.support.scenarios.run --engine local --seeds 0-199``: run random scenarios and
check results.

``--engine local`` runs planner, driver and workers in this process, each scenario with random
plans, layouts, failures and restarts (``tests.support.scenarios.script``); a scenario takes about a
second. ``--engine spark`` runs all pipelines in one Spark session
(``tests.support.worlds.spark_replay``); a scenario takes some seconds. ``--engine replay`` (the
default) runs ``anabranch replay`` with all processes of a real pipeline.

Prints a line per seed and, at the end, the number of scenarios with each feature. A failed scenario
stays in the folder ``--keep``, with its results.
"""

from __future__ import annotations

import argparse
import json
import logging
import shutil
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING

import structlog

from anabranch_runtime.state.slices import Throttle
from tests.support.scenarios.changes import (
    generate_with_changes,
    generate_with_followed,
    generate_with_upserts,
)
from tests.support.scenarios.crowded import befallen, generate_different, limits
from tests.support.scenarios.draw import (
    Generated,
    generate,
    generate_respelled,
    generate_theta,
)
from tests.support.scenarios.features import features
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.latest import generate_with_latest
from tests.support.scenarios.past import generate_with_past
from tests.support.scenarios.picked import generate_picked
from tests.support.scenarios.retained import generate_retained
from tests.support.scenarios.rows import LOCAL
from tests.support.scenarios.script import Script, draw
from tests.support.scenarios.tables import generate_with_tables
from tests.support.scenarios.ttls import generate_with_ttls
from tests.support.surroundings.folders import folder_in_memory
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.local_replay import LocalReplay
from tests.support.worlds.replay_check import Run, Verdict, check_run, replay_and_check
from tests.support.worlds.spark_replay import MASTER, SparkReplay, draw_for_spark, start_spark

#: Maximum ages of members of results in microseconds: 0, some seconds, minutes, an hour.
AGES = (0, 5_000_000, 180_000_000, 600_000_000, 3_600_000_000)

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from pyspark.sql import SparkSession

    from tests.support.plain_service import Planner

    #: Function that runs a seed's scenario in a folder; returns the verdict and its features.
    Engine = Callable[[int, Path], tuple[Verdict, Counter[str]]]
    #: Function that generates a seed's scenario in a folder, with a ``scenario_rows.Size``.
    Make = Callable[..., Generated]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the scenarios; returns the number of seeds that failed (at most 99)."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engine", choices=("local", "spark", "replay"), default="replay")
    parser.add_argument("--seeds", default="0-9", help="such as 3 or 0-59 or 1,4,7-9")
    parser.add_argument("--jobs", type=int, default=1, help="at once (replay only)")
    parser.add_argument("--keep", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--all", action="store_true", help="keep what passed as well")
    kinds = parser.add_mutually_exclusive_group()
    kinds.add_argument("--ttl", action="store_true", help="with ttls that change")
    kinds.add_argument("--latest", action="store_true", help="with streams that keep the latest")
    kinds.add_argument("--retained", action="store_true", help="with streams that are retained")
    kinds.add_argument("--changes", action="store_true", help="with streams of changes")
    kinds.add_argument("--upserts", action="store_true", help="with streams of upserts")
    kinds.add_argument("--tables", action="store_true", help="with tables")
    kinds.add_argument("--followed", action="store_true", help="with tables beside changes")
    kinds.add_argument("--crowded", action="store_true", help="many different filters (local)")
    kinds.add_argument("--dppick", action="store_true", help="planned by dpPick")
    kinds.add_argument("--respelled", action="store_true", help="with subqueries and WITH")
    kinds.add_argument("--theta", action="store_true", help="with joins without equalities")
    parser.add_argument(
        "--objects", action="store_true", help="state in an object store, machines lost"
    )
    parser.add_argument(
        "--relaxed", action="store_true", help="parts of filters are checked after joining (local)"
    )
    parser.add_argument(
        "--revised", action="store_true", help="a random revision before every batch (local)"
    )
    parser.add_argument(
        "--rationed", action="store_true", help="batches withhold random tuples (local)"
    )
    parser.add_argument(
        "--owed", action="store_true", help="and most of that is made good later (local)"
    )
    parser.add_argument("--fresh", action="store_true", help="results may not be too old (local)")
    parser.add_argument("--hosts", action="store_true", help="tasks on several hosts (local)")
    parser.add_argument("--past", action="store_true", help="queries emit their past (local)")
    parser.add_argument("--master", default=MASTER, help="of Spark (spark)")
    parser.add_argument("--json", action="store_true", help="print JSON documents, one per line")
    options = parser.parse_args(arguments)
    root = options.keep or folder_in_memory("anabranch-scenarios-")
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    seeds = seeds_of(options.seeds)
    failed: list[int] = []
    covered: Counter[str] = Counter()
    started = time.monotonic()
    with ExitStack() as stack:
        make: Make = generate_with_ttls if options.ttl else generate
        make = generate_with_latest if options.latest else make
        make = generate_retained if options.retained else make
        make = generate_with_changes if options.changes else make
        make = generate_with_upserts if options.upserts else make
        make = generate_with_tables if options.tables else make
        make = generate_with_followed if options.followed else make
        make = generate_respelled if options.respelled else make
        make = generate_theta if options.theta else make
        make = generate_picked if options.dppick else make
        make = generate_different if options.crowded else make
        make = generate_with_past if options.past and make is generate else make
        engine: Engine = partial(replay, make=make)
        if options.engine == "local":
            url = stack.enter_context(redis_url())
            engine = partial(
                local,
                url=url,
                make=make,
                remote=options.objects,
                relaxed=options.relaxed,
                revised=options.revised,
                rationed=options.rationed,
                owed=options.owed,
                fresh=options.fresh,
                past=options.past,
                hosts=options.hosts,
            )
        elif options.engine == "spark":
            url = stack.enter_context(redis_url())
            session = start_spark(options.master)
            engine = partial(spark, url=url, session=session, make=make, remote=options.objects)
        jobs = options.jobs if options.engine == "replay" else 1
        pool = stack.enter_context(ThreadPoolExecutor(jobs))

        def run(seed: int) -> tuple[Verdict, Counter[str], float]:
            before = time.monotonic()
            shutil.rmtree(root / str(seed), ignore_errors=True)
            verdict, found = engine(seed, root / str(seed))
            if not verdict.problems and not options.all:
                shutil.rmtree(root / str(seed))
            return verdict, found, time.monotonic() - before

        for seed, (verdict, found, seconds) in zip(seeds, pool.map(run, seeds), strict=True):
            failed += [seed] if verdict.problems else []
            covered.update(found.keys())
            line = f"seed {seed} {seconds:.1f}s {verdict}"
            if options.json:
                line = json.dumps(
                    {
                        "seed": seed,
                        "seconds": round(seconds, 2),
                        "queries": verdict.queries,
                        "results": verdict.results,
                        "problems": verdict.problems,
                        "covered": sorted(found),
                    }
                )
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    seconds = time.monotonic() - started
    if options.json:
        summary = {"failed": failed, "seconds": round(seconds, 1), "covered": dict(covered)}
        sys.stdout.write(json.dumps(summary, sort_keys=True) + "\n")
    else:
        for name, count in sorted(covered.items()):
            sys.stdout.write(f"{count:6}  {name}\n")
        sys.stdout.write(f"{len(seeds)} scenarios in {seconds:.0f} s, failed: {failed or 'none'}\n")
        sys.stdout.write(f"working folder {root}\n")
    return min(len(failed), 99)


def replay(seed: int, folder: Path, make: Make = generate) -> tuple[Verdict, Counter[str]]:
    """Run a seed by ``anabranch replay``."""
    scenario = make(seed, folder)
    verdict, _ = replay_and_check(scenario.path, folder / "out", scenario.queries)
    return verdict, Counter(features(scenario))


def local(
    seed: int,
    folder: Path,
    url: str,
    make: Make = generate,
    *,
    remote: bool = False,
    relaxed: bool = False,
    revised: bool = False,
    rationed: bool = False,
    owed: bool = False,
    fresh: bool = False,
    past: bool = False,
    hosts: bool = False,
) -> tuple[Verdict, Counter[str]]:
    """A seed in this process, by the script of the same seed; ``remote``: :func:`run_local`,
    ``relaxed``: ``Script.relaxed``, ``revised``: before every batch, ``rationed``: most batches,
    ``owed``: half of them, and most of that is made good, ``fresh``: results
    of many queries may not be too old, ``past``: most queries emit their past, ``hosts``: tasks are
    on several hosts, and other values are hot by every ruleset.
    """
    generated = make(seed, folder, LOCAL)
    if make is generate_different:
        with limits(seed):
            return run_local(generated, befallen(seed, generated), url, remote=remote)
    batches = max(len(s.cuts or ()) for s in read_scenario(generated.path).streams.values())
    script = replace(draw(seed, batches), relaxed=relaxed)
    if make is generate_picked:
        # With the scenario's optimisers instead of plans that ignore costs.
        script = replace(script, odd=False, picked=True)
    if revised:
        script = replace(script, revised=frozenset(range(1, batches)))
    if rationed:
        rng = Random(seed)
        chosen = frozenset(b for b in range(batches) if rng.random() < 0.8)
        script = replace(script, rationed=chosen)
    if owed:
        rng = Random(seed)
        chosen = frozenset(b for b in range(batches) if rng.random() < 0.5)
        made_good = frozenset(b for b in chosen if rng.random() < 0.85)
        script = replace(script, rationed=chosen, owed=made_good)
    if fresh:
        script = replace(script, fresh=_limits(generated, Random(seed)))
    if past:
        rng = Random(seed)
        script = replace(
            script, past=frozenset(name for name in generated.queries if rng.random() < 0.8)
        )
    if hosts:
        rng = Random(seed)
        script = replace(
            script,
            hosts=tuple(rng.choice((1, 2, 3, 4)) for _ in range(batches)),
            tasks=tuple((rng.randint(2, 5), rng.randint(2, 5)) for _ in range(batches)),
            hot=True,
        )
    return run_local(generated, script, url, remote=remote)


def _limits(generated: Generated, rng: Random) -> dict[str, dict[str, int]]:
    """Draw maximum ages of members of results, for streams with event times."""
    scenario, found = read_scenario(generated.path), dict[str, dict[str, int]]()
    for name, query in generated.queries.items():
        timed = [a for a, s in query.members if scenario.streams[s].event_time is not None]
        chosen = {a: rng.choice(AGES) for a in timed if rng.random() < 0.6}
        if chosen:
            found[name] = chosen
    return found


def assert_exact(
    seeds: Iterable[int],
    folder: Path,
    url: str,
    make: Make,
    wanted: Collection[str],
    *,
    relaxed: bool = False,
    revised: bool = False,
    rationed: bool = False,
    owed: bool = False,
    fresh: bool = False,
    past: bool = False,
    hosts: bool = False,
) -> None:
    """Assert that the scenarios of ``seeds`` have exact results in this process, and cover the
    features ``wanted``.

    Raises:
        AssertionError: results are wrong, or a feature is missing.
    """
    wrong: dict[int, str] = {}
    covered: set[str] = set()
    for seed in seeds:
        verdict, happened = local(
            seed,
            folder / str(seed),
            url,
            make,
            relaxed=relaxed,
            revised=revised,
            rationed=rationed,
            owed=owed,
            fresh=fresh,
            past=past,
            hosts=hosts,
        )
        covered |= set(happened)
        if verdict.problems:
            wrong[seed] = str(verdict)
    assert not wrong, wrong
    assert covered >= set(wanted), sorted(set(wanted) - covered)


def spark(
    seed: int,
    folder: Path,
    url: str,
    session: SparkSession,
    make: Make = generate,
    *,
    remote: bool = False,
) -> tuple[Verdict, Counter[str]]:
    """Run a seed by Spark in this process; ``remote``: with an object store, and a new empty
    machine after both restarts.
    """
    generated = make(seed, folder)
    script = draw_for_spark(seed, 8)
    replay = SparkReplay(generated.path, folder / "out", url, session, script)
    if remote:
        replay.objects = folder / "objects"
        replay.script = replace(script, restarts=frozenset((2, 4)))
    return _checked(generated, replay)


def run_local(
    generated: Generated,
    script: Script,
    url: str,
    *,
    remote: bool = False,
    planner: Planner | None = None,
) -> tuple[Verdict, Counter[str]]:
    """Run a scenario in this process by ``script``. ``remote``: with an object store, hardly any
    cache, and lost machines. ``planner``: function that makes the plans.
    """
    out = generated.folder / "out"
    replay = LocalReplay(generated.path, out, url, planner=planner, script=script)
    if (script.owed or script.past) and script.seed % 2:
        # Every debt is paid in many slices.
        replay.throttle = Throttle(first=3, least=2, most=8)
    if remote:
        rng = Random(script.seed)
        replay.objects = generated.folder / "objects"
        replay.cache_size = rng.choice((0, 4096, 1 << 16))
        replay.losses = frozenset(b for b in range(100) if rng.random() < 0.3)
    return _checked(generated, replay)


def _checked(
    generated: Generated, replay: LocalReplay | SparkReplay
) -> tuple[Verdict, Counter[str]]:
    """Run and check a scenario; an exception is reported as a problem."""
    try:
        activations = replay.run()
        scenario = read_scenario(generated.path)
        oracle = replay.oracle()
        try:
            results = replay.out / "results"
            run = Run(
                scenario, generated.queries, replay.spans, activations, results, replay.begins
            )
            verdict = check_run(oracle, run, replay.report)
        finally:
            oracle.close()
    except Exception:  # noqa: BLE001 - reported with the seed, and the others go on
        tail = traceback.format_exc(limit=-4)
        verdict = Verdict(len(generated.queries), 0, (tail,))
    return verdict, replay.events + Counter(features(generated))


def seeds_of(text: str) -> list[int]:
    """Parse seeds in the form of the example.

    >>> seeds_of("1,4,7-9")
    [1, 4, 7, 8, 9]
    """
    seeds: list[int] = []
    for part in text.split(","):
        first, _, last = part.partition("-")
        seeds += range(int(first), int(last or first) + 1)
    return seeds


if __name__ == "__main__":
    sys.exit(main())
