"""Tests of backfills in random scenarios without Spark, in tiny slices, compared with DuckDB."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from anabranch_contract.plans.plan import Backfilling, Optimizer, Plan
from anabranch_contract.queries.joins import JoinQuery
from anabranch_planner.cost.statistics.statistics import Statistics
from anabranch_runtime.state.manifest import Manifests, State, StoreState
from anabranch_runtime.state.slices import Throttle
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA
from anabranch_runtime.storage.segment_cache import open_segment
from tests.support.cases.random_plans import random_plan
from tests.support.oracles.oracle import Oracle, OracleQuery
from tests.support.plain_service import Planner
from tests.support.scenarios.draw import Generated, generate
from tests.support.scenarios.file import read_scenario
from tests.support.scenarios.rows import LOCAL, Size
from tests.support.scenarios.script import Death, Fault, Point, Script, draw
from tests.support.worlds.local_replay import LocalReplay

#: Size of scenarios with many small batches.
LONG = replace(LOCAL, batches=(12, 20), queries=(1, 4))
#: Size of scenarios with fewer batches and more results.
DENSE = replace(LOCAL, batches=(8, 12), rows=(10, 40), queries=(1, 3), largest=20_000)
#: Slices of a few rows, whatever time they take.
TINY = Throttle(first=7, least=7, most=7)


def steady(folder: Path) -> Generated:
    """Write a scenario with a four-way chain over full history with a filter: 12 batches, an epoch
    every two.
    """
    rng = np.random.default_rng(11)
    folder.mkdir(parents=True)
    columns = {"R": ("a",), "S": ("a", "b"), "T": ("b", "c"), "U": ("c",)}
    for name, names in columns.items():
        values = {c: pa.array(rng.integers(0, 8, 72), mask=rng.random(72) < 0.1) for c in names}
        pq.write_table(pa.table(values), folder / f"{name}.parquet")
    where = ("R.a = S.a", "S.b = T.b", "T.c = U.c", "T.c > 1")
    select = "SELECT R.a AS a, S.b AS b, T.c AS c FROM R, S, T, U WHERE "
    document = {
        "streams": {n: {"path": f"{n}.parquet", "rows_per_batch": 6} for n in columns},
        "queries": {"q": {"sql": select + " AND ".join(where), "register_at": 0}},
        "epochs": {"every": 2},
        "parallelism": 3,
    }
    (folder / "SCENARIO.yaml").write_text(yaml.safe_dump(document))
    output = (("R.a", "a", True), ("S.b", "b", True), ("T.c", "c", True))
    members = tuple((name, name) for name in columns)
    return Generated(folder, {"q": OracleQuery(members, output, where)})


def phases(seed: int) -> Planner:
    """Return plans for successive epochs: first without intermediate results, then with some that
    stay for an epoch or two, then without, then with the first ones again.
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
            made[key] = random_plan(queries, rng, mirs=0.9 if kind else 0.0, apart=True)
        return made[key]

    return plan


def run(
    seed: int | None,
    redis: str,
    out: Path,
    *,
    throttle: Throttle = TINY,
    script: Script | None = None,
    backfilling: Callable[[int], Backfilling] = lambda _: Backfilling.ALWAYS,
    planner: Planner | None = None,
    size: Size = LONG,
) -> Counter[str]:
    """Run scenario ``seed``, or :func:`steady`, with backfills, and compare every query with the
    oracle.

    Returns:
        Event -> count.
    """
    folder = out / "scenario"
    generated = steady(folder) if seed is None else generate(seed, folder, size)
    replay = LocalReplay(
        generated.path,
        out / "out",
        redis,
        planner=planner or phases(seed or 0),
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
    """Random arguments of :func:`run`."""

    throttle: Throttle
    script: Script
    backfilling: Callable[[int], Backfilling]


def drawn(seed: int) -> Drawn:
    """Return slices of any size, a script with many events, and a changing backfill policy."""
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
    """Return a planner with intermediate results from epoch ``first`` on, the same for the same
    queries.
    """

    def plan(
        queries: Sequence[JoinQuery],
        statistics: Statistics,
        optimizer: Optimizer,
        parallelism: int,
        epoch: int,
    ) -> Plan:
        rng = Random(f"{seed}:{sorted(q.id for q in queries)}")
        wanted = min(3, max((len(q.members) for q in queries), default=1) - 1)
        while True:
            made = random_plan(queries, rng, mirs=0.95 if epoch >= first else 0.0, apart=True)
            if epoch < first or most_joined(made) >= wanted:
                return made

    return plan


def most_joined(plan: Plan) -> int:
    """Return the members of the largest store."""
    return max((len(m.members) for m in plan.mirs), default=0)


def combinations(state: State, root: Path, store: str) -> Counter[tuple[int, ...]]:
    """Return the rows of a store, as their members' tuple ids."""
    spec, found = state.stores[store].spec, Counter[tuple[int, ...]]()
    for segment in state.stores[store].segments:
        rows = open_segment(str(root), segment).batch
        sigmas = [rows.column(f"{SIGMA}:{m}").to_pylist() for m in spec.members]
        found.update(zip(*sigmas, strict=True))
    return found


def compare_with_maintenance(seed: int | None, redis: str, out: Path) -> int:
    """Compare scenario ``seed``, or :func:`steady`, with intermediate results from the start, and
    with backfilled ones.

    Returns:
        How many rows of backfilled batches both runs have.
    """
    rows = 11 if seed is None else Random(seed).choice((5, 40, 1 << 20))
    states: list[tuple[State, Path]] = []
    for first in (0, 2):
        folder = out / str(first)
        throttle = Throttle(first=rows, least=rows, most=rows)
        plans = kept_plans(seed or 0, first)
        run(seed, redis, folder, planner=plans, throttle=throttle, size=DENSE)
        root = folder / "out" / "state"
        states.append((Manifests(root).load(), root))
    (whole, _), (filled, _) = states
    began = dict(filled.epoch_starts).get(2, 0)
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
    assert compare_with_maintenance(None, redis, tmp_path) > 100


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8000, 8040))
def test_it_is_whatever_the_scenario(seed: int, redis: str, tmp_path: Path) -> None:
    compare_with_maintenance(seed, redis, tmp_path)


@pytest.mark.e2e
def test_backfills_in_slices_are_exact(redis: str, tmp_path: Path) -> None:
    happened = run(None, redis, tmp_path)
    for event in ("backfill done", "backfill dropped", "gap beside a container"):
        assert happened[event], f"no {event}: {happened}"


@pytest.mark.e2e
def test_a_backfill_survives_tasks_that_fail_and_drivers_that_die(
    redis: str, tmp_path: Path
) -> None:
    script = Script(
        seed=5,
        layouts=True,
        tasks=((2,), (3,), (1,), (2, 3)),
        faults=(((4, 0), Fault(0, Point.END, 0)), ((7, 0), Fault(1, Point.MEET, 1))),
        deaths=((3, Death.COMMIT), (4, Death.JOB), (6, Death.COMMITTED)),
        restarts=frozenset({5, 9}),
        fanout=(2,),
    )
    happened = run(None, redis, tmp_path, script=script, planner=kept_plans(0, 1))
    for event in ("backfill done", "driver gone: commit", "driver gone: job", "restart"):
        assert happened[event], f"no {event}: {happened}"


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(6000, 6150))
def test_whatever_befalls_a_backfill_it_is_exact(seed: int, redis: str, tmp_path: Path) -> None:
    run(seed, redis, tmp_path, **drawn(seed))
