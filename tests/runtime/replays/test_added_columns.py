"""Tests of added and widened columns of streams in use: exact through plan changes,
kills, merges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.faults import Point
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.added_columns import AddedColumns
from tests.support.worlds.fed import Killed
from tests.support.worlds.keyed_columns import KeyedColumns
from tests.support.worlds.widened_columns import WidenedColumns

#: Points of the protocol at which the driver is killed.
DEADLY = (Point.CHOOSING, Point.CHOSEN, Point.STAGED, Point.PUBLISHED, Point.COMMITTED)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    fetch_ruleset.cache_clear()
    for name in ("loads.QUIET_FIRST", "loads.QUIET", "files.feed.LISTING"):
        monkeypatch.setattr(f"anabranch_runtime.sources.{name}", 0.0)
    monkeypatch.setattr("anabranch_runtime.sources.files.feed.WRITING", 1e18)
    with redis_url() as found:
        yield found


SEEDS = pytest.mark.parametrize("seed", mostly_slow(range(60)))


@SEEDS
def test_rows_of_before_have_the_default(
    seed: int, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = AddedColumns(url, tmp_path / "fed", seed)

    def register() -> None:
        world.all_registered = True

    _run(world, register, monkeypatch)
    assert world.verify()


@SEEDS
def test_rows_of_before_have_the_wider_type(
    seed: int, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = WidenedColumns(url, tmp_path / "fed", seed)

    def register() -> None:
        world.wide_registered = True

    _run(world, register, monkeypatch)
    world.driver.tables.drain()
    assert world.verify()
    world.driver.tables.close()


@pytest.mark.e2e
@SEEDS
def test_rows_with_keys_and_changes_follow_their_columns(
    seed: int, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = KeyedColumns(url, tmp_path / "fed", seed)

    def register() -> None:
        world.wide_registered = True

    _run(world, register, monkeypatch)
    assert world.verify()


def _run(
    world: AddedColumns | WidenedColumns | KeyedColumns,
    register: Callable[[], None],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Run a pipeline whose driver is killed at random points; its streams change at a
    random step.
    """
    chance, deadly = world.chance, list[Point | None]([None])

    def reach(point: Point) -> None:
        if point is deadly[0]:
            deadly[0] = None
            raise Killed

    monkeypatch.setattr("anabranch_runtime.driver.driver.reach", reach)
    registered = chance.randrange(2, 12)
    for step in range(30):
        if step == registered:
            register()
            world.read_anew()
        if chance.random() < 0.6:
            world.add_file()
        world.send()
        deadly[0] = chance.choice((None, None, *DEADLY))
        try:
            world.turn()
        except Killed:
            fetch_ruleset.cache_clear()
            world.start()
        deadly[0] = None
    world.drain()
    for _ in range(4):
        world.send()
        world.add_file()
        world.turn()
    world.drain()
