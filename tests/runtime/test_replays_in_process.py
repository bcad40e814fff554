"""Random scenarios through planner, driver and workers without Spark, compared with DuckDB."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import pytest

from tests.support.local_replay import CrashError, LocalReplay, plan_normally
from tests.support.oracle import Oracle
from tests.support.random_plans import random_plan
from tests.support.redis import redis_url
from tests.support.scenario_file import read_scenario
from tests.support.scenarios import Generated, generate

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from anabranch_planner.model import JoinQuery
    from anabranch_planner.plan import Optimizer, Plan
    from anabranch_planner.statistics import Statistics
    from tests.support.local_replay import Planner


@pytest.fixture(scope="module")
def redis() -> Iterator[str]:
    with redis_url() as url:
        yield url


def odd_plans(seed: int) -> Planner:
    """Plans chosen without regard to cost, another one in each epoch."""
    rng = Random(seed)

    def plan(
        queries: Sequence[JoinQuery],
        statistics: Statistics,
        optimizer: Optimizer,
        parallelism: int,
        epoch: int,
    ) -> Plan:
        return random_plan(queries, rng, mirs=0.7)

    return plan


def assert_exact(generated: Generated, replay: LocalReplay) -> None:
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


@pytest.mark.parametrize("seed", range(10))
def test_optimised_plans_are_exact(seed: int, redis: str, tmp_path: Path) -> None:
    generated = generate(seed, tmp_path / "scenario")
    assert_exact(generated, LocalReplay(generated.path, tmp_path / "out", redis))


@pytest.mark.parametrize("seed", range(200, 212))
def test_odd_plans_are_exact(seed: int, redis: str, tmp_path: Path) -> None:
    generated = generate(seed, tmp_path / "scenario")
    replay = LocalReplay(generated.path, tmp_path / "out", redis, planner=odd_plans(seed))
    assert_exact(generated, replay)


@pytest.mark.parametrize("seed", range(300, 304))
def test_a_driver_that_dies_before_its_commit_loses_and_doubles_nothing(
    seed: int, redis: str, tmp_path: Path
) -> None:
    generated = generate(seed, tmp_path / "scenario")
    crashes = {1, 4, 7}

    def crash(batch: int) -> None:
        if batch in crashes:
            crashes.remove(batch)
            raise CrashError

    replay = LocalReplay(
        generated.path, tmp_path / "out", redis, planner=odd_plans(seed), crash=crash
    )
    assert_exact(generated, replay)
    assert len(crashes) < 3


@pytest.mark.parametrize("tasks", [1, 3])
def test_the_number_of_tasks_does_not_matter(tasks: int, redis: str, tmp_path: Path) -> None:
    generated = generate(5, tmp_path / "scenario")
    assert_exact(generated, LocalReplay(generated.path, tmp_path / "out", redis, tasks=tasks))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(1000, 1150))
def test_many_odd_plans_are_exact(seed: int, redis: str, tmp_path: Path) -> None:
    generated = generate(seed, tmp_path / "scenario")
    planner = plan_normally if seed % 3 == 0 else odd_plans(seed)
    assert_exact(generated, LocalReplay(generated.path, tmp_path / "out", redis, planner=planner))
