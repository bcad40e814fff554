"""Backfills in random scenarios without Spark, in tiny slices, compared with DuckDB."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, TypedDict

import pytest

from anabranch_planner.optimiser.backfill import Backfilling
from anabranch_runtime.state.manifest import Manifests
from anabranch_runtime.state.segment import OFFSET_BITS, SIGMA, open_segment
from anabranch_runtime.state.slices import Throttle
from tests.support.local_replay import LocalReplay
from tests.support.oracle import Oracle
from tests.support.random_plans import random_plan
from tests.support.redis import redis_url
from tests.support.scenario_file import read_scenario
from tests.support.scenario_rows import LOCAL
from tests.support.scenarios import generate
from tests.support.script import Script, draw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from anabranch_planner.model import JoinQuery
    from anabranch_planner.plan import Optimizer, Plan
    from anabranch_planner.statistics import Statistics
    from anabranch_runtime.state.manifest import State, StoreState
    from tests.support.plain_service import Planner

#: Scenarios in which something is computed that has rows.
COMPARED = (8000, 8001, 8002)
#: Many small batches.
LONG = replace(LOCAL, batches=(12, 20), queries=(1, 4))
#: Slices of a few rows, whatever time they take.
TINY = Throttle(first=7, least=7, most=7)


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    with redis_url() as url:
        yield url


def phases(seed: int) -> Planner:
    """Plans that come, go and come again: first without intermediate results, then some with them
    that stay for an epoch or two, then without, then with the first ones again.
    """
    rng = Random(seed)
    made: dict[tuple[tuple[str, ...], int], Plan] = {}
    length = rng.choice((1, 1, 2))

    def plan(
        queries: Sequence[JoinQuery],
        statistics: Statistics,
        optimizer: Optimizer,
        parallelism: int,
        epoch: int,
    ) -> Plan:
        kind = (0, 1, 1, 2, 0, 1)[epoch // length % 6]
        key = (tuple(q.id for q in queries), kind)
        if key not in made:
            made[key] = random_plan(queries, rng, mirs=0.9 if kind else 0.0)
        return made[key]

    return plan


def run(
    seed: int,
    redis: str,
    out: Path,
    *,
    throttle: Throttle = TINY,
    script: Script | None = None,
    backfilling: Callable[[int], Backfilling] = lambda _: Backfilling.ALWAYS,
    planner: Planner | None = None,
) -> Counter[str]:
    """Run scenario ``seed``; what has happened. Every query's results are the oracle's."""
    generated = generate(seed, out / "scenario", LONG)
    replay = LocalReplay(
        generated.path,
        out / "out",
        redis,
        planner=planner or phases(seed),
        script=script,
        backfilling=backfilling,
        throttle=throttle,
    )
    activations = replay.run()
    scenario = read_scenario(generated.path)
    oracle = Oracle(scenario)
    try:
        for name, query in generated.queries.items():
            if name in activations:
                results = replay.out / "results" / name
                found = oracle.compare(query, scenario.queries[name], activations[name], results)
                assert not found.problems, f"{name}: {found.problems}"
                assert found.got == activations[name].results
    finally:
        oracle.close()
    return replay.events


class Drawn(TypedDict):
    """What :func:`run` takes."""

    throttle: Throttle
    script: Script
    backfilling: Callable[[int], Backfilling]


def drawn(seed: int) -> Drawn:
    """Slices of any size, a script in which a lot may happen, and a rule that comes and goes."""
    rng = Random(seed)
    rows = rng.choice((3, 30, 1 << 20, 1 << 20))
    steady = rng.random() < 0.6
    settings = [Backfilling.ALWAYS if steady else rng.choice(tuple(Backfilling)) for _ in range(64)]
    return {
        "throttle": Throttle(first=rows, least=rows, most=rows),
        "script": draw(seed, 20),
        "backfilling": lambda epoch: settings[epoch],
    }


def kept_plans(seed: int, first: int) -> Planner:
    """Plans with intermediate results from epoch ``first`` on, the same for the same queries."""

    def plan(
        queries: Sequence[JoinQuery],
        statistics: Statistics,
        optimizer: Optimizer,
        parallelism: int,
        epoch: int,
    ) -> Plan:
        rng = Random(f"{seed}:{sorted(q.id for q in queries)}")
        return random_plan(queries, rng, mirs=0.95 if epoch >= first else 0.0)

    return plan


def combinations(state: State, root: Path, store: str) -> Counter[tuple[int, ...]]:
    """Store's rows: the members' sigmas."""
    spec, found = state.stores[store].spec, Counter[tuple[int, ...]]()
    for segment in state.stores[store].segments:
        rows = open_segment(str(root), segment).batch
        sigmas = [rows.column(f"{SIGMA}:{m}").to_pylist() for m in spec["members"]]
        found.update(zip(*sigmas, strict=True))
    return found


def compare_with_maintenance(seed: int, redis: str, out: Path) -> int:
    """Run scenario ``seed`` with intermediate results from the start, and with backfilled ones.

    Returns:
        How many rows of backfilled batches both runs have.
    """
    rows = Random(seed).choice((5, 40, 1 << 20))
    states: list[tuple[State, Path]] = []
    for first in (0, 2):
        folder = out / str(first)
        throttle = Throttle(first=rows, least=rows, most=rows)
        run(seed, redis, folder, planner=kept_plans(seed, first), throttle=throttle)
        root = folder / "out" / "state"
        states.append((Manifests(root).load(), root))
    (whole, _), (filled, _) = states
    began = dict(filled.epoch_starts)[2] if 2 in dict(filled.epoch_starts) else 0
    seen = 0
    for name, store in filled.stores.items():
        other = whole.stores.get(name)
        expired = [*store.expired_below, *(other.expired_below if other is not None else ())]
        if store.is_base or other is None or any(t is not None for t in expired):
            continue
        both = [set(covered(s, filled.next_batch - 1)) for s in (store, other)]
        common = both[0] & both[1]
        one, two = (
            Counter({k: n for k, n in found.items() if max(k) >> OFFSET_BITS in common})
            for found in (combinations(state, root, name) for state, root in states)
        )
        assert one == two, f"{name}: {len(one - two)} missing, {len(two - one)} too many"
        assert not two or max(two.values()) == 1
        seen += sum(max(k) >> OFFSET_BITS < began for k in two)
    return seen


def covered(store: StoreState, now: int) -> list[int]:
    return [batch for low, high in store.covers(now) for batch in range(low, high + 1)]


def test_what_is_computed_is_what_maintenance_would_have_stored(redis: str, tmp_path: Path) -> None:
    seen = [compare_with_maintenance(seed, redis, tmp_path / str(seed)) for seed in COMPARED]
    assert sum(seen) > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8000, 8040))
def test_it_is_whatever_the_scenario(seed: int, redis: str, tmp_path: Path) -> None:
    compare_with_maintenance(seed, redis, tmp_path)


def test_backfills_in_slices_are_exact(redis: str, tmp_path: Path) -> None:
    happened: Counter[str] = Counter()
    for seed in (503, 506, 509):
        happened += run(seed, redis, tmp_path / str(seed))
    for event in ("backfill", "backfill done", "merge of a backfill", "gap beside a container"):
        assert happened[event], f"no {event} in any scenario: {happened}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6000, 6150))
def test_whatever_befalls_a_backfill_it_is_exact(seed: int, redis: str, tmp_path: Path) -> None:
    run(seed, redis, tmp_path, **drawn(seed))
