"""Tests of replays from the command line on hosts that share only an object store, compared row by
row.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.support.scenarios import outer
from tests.support.scenarios.draw import Generated, generate, generate_respelled
from tests.support.scenarios.latest import generate_with_latest
from tests.support.scenarios.past import generate_with_past
from tests.support.scenarios.ttls import generate_with_ttls
from tests.support.worlds.hosted_replay import begin
from tests.support.worlds.hosts import CACHE, Cluster
from tests.support.worlds.strikes import Kind, strike

pytestmark = [pytest.mark.spark, pytest.mark.slow]
MAKERS: dict[str, Callable[..., Generated]] = {
    "plain": generate,
    "latest": generate_with_latest,
    "past": generate_with_past,
    "ttl": generate_with_ttls,
    "respelled": generate_respelled,
}


@pytest.mark.parametrize("seed", [1000, 1001, 1002])
@pytest.mark.parametrize("kind", MAKERS)
def test_a_replay_is_exact(kind: str, seed: int, world: Cluster, tmp_path: Path) -> None:
    made = MAKERS[kind](seed, tmp_path / f"{kind}-{seed}")
    replay = begin(world, made.path, *(("--cache-directory", CACHE) if seed % 2 else ()))
    try:
        verdict = replay.verdict(made.queries)
        assert not verdict.problems, f"{verdict}\n{replay.log[-3000:]}"
    finally:
        replay.close()


def test_views_and_outer_joins_are_exact(world: Cluster, tmp_path: Path) -> None:
    folder = tmp_path / "outer"
    folder.mkdir()
    scenario, tables = outer.write(folder)
    replay = begin(world, scenario)
    try:
        assert replay.process.wait(300) == 0, f"{replay.text}\n{replay.log[-3000:]}"
        outer.check(replay.out, tables)
    finally:
        replay.close()


@pytest.mark.parametrize("seed", range(4))
def test_a_replay_is_exact_whose_hosts_come_and_go(
    seed: int, world: Cluster, tmp_path: Path
) -> None:
    made, rng = generate(seed, tmp_path / f"rescaled-{seed}"), Random(seed)
    replay, changes = begin(world, made.path), 0
    try:
        while replay.process.poll() is None:
            replay.await_commits(replay.committed() + 1)
            strike(world, rng.choice((Kind.ADDED, Kind.REMOVED)), rng)
            changes += 1
        verdict = replay.verdict(made.queries)
        assert not verdict.problems, f"{verdict}\n{replay.log[-3000:]}"
        assert changes > 2
    finally:
        replay.close()
        world.fill(3)


def test_one_worker_is_enough(world: Cluster, tmp_path: Path) -> None:
    made = generate(1003, tmp_path / "alone")
    for host in world.alive()[1:]:
        host.kill()
    replay = begin(world, made.path)
    try:
        verdict = replay.verdict(made.queries)
        assert not verdict.problems, f"{verdict}\n{replay.log[-3000:]}"
    finally:
        replay.close()
        world.fill(3)
