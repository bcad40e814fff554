"""Tables that are read again: each batch looks up one version wholly."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.epochs.table_versions import rows_kept
from anabranch_runtime.faults import Point
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.fed import Killed
from tests.support.worlds.rereads import Rereads

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Points of the protocol at which the driver dies.
DEADLY = (Point.CHOOSING, Point.CHOSEN, Point.STAGED, Point.PUBLISHED, Point.COMMITTED)
#: Of every third the table has no reader at first.
SEEDS = (0, 2)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    fetch_ruleset.cache_clear()
    for name in ("QUIET_FIRST", "QUIET", "LISTING"):
        monkeypatch.setattr(f"anabranch_runtime.sources.files.feed.{name}", 0.0)
    monkeypatch.setattr("anabranch_runtime.sources.files.feed.WRITING", 1e18)
    with redis_url() as found:
        yield found


def run(world: Rereads, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Random batches, rereads, additions and deaths; then all that is left."""
    chance, deadly = world.chance, [None]

    def reach(point: Point) -> None:
        if point is deadly[0]:
            deadly[0] = None
            raise Killed

    monkeypatch.setattr("anabranch_runtime.driver.driver.reach", reach)
    world.add_file()
    world.drain()
    for _ in range(steps):
        act = chance.random()
        if act < 0.4:
            world.send()
        elif act < 0.6:
            world.reread(chance.choice((0, 1, 2, 4)))
            world.read_anew()
        elif act < 0.7:
            world.drain()
            world.add_file()
            world.drain()
        deadly[0] = chance.choice((None, None, *DEADLY))
        try:
            world.turn()
        except Killed:
            fetch_ruleset.cache_clear()
            if chance.random() < 0.4:
                world.reread(1)
            world.start()
        deadly[0] = None
    world.drain()
    world.send()
    world.send()
    world.drain()


@pytest.mark.parametrize(
    "seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(10, 40))]
)
def test_each_batch_looks_up_one_version(
    seed: int, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Rereads(url, tmp_path / "fed", seed, unread=seed % 3 == 2)
    run(world, monkeypatch, 24)
    world.check(world.version)
    versions = world.driver.state.streams["R"].versions
    assert versions is not None
    assert (versions.number, versions.coming) == (world.version, 0)
    if not world.key:
        rows = len(world.rows_of(world.version))
        assert rows_kept(world.driver.state, "R") in (rows, None)
