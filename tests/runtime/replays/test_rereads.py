"""Tests of tables that are read again (rereads): each batch looks up one whole version."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest

from anabranch_contract.queries.joins import StreamKind
from anabranch_runtime.control import fetch_ruleset
from anabranch_runtime.epochs.table_versions import rows_kept, table_progress
from anabranch_runtime.faults import Point
from anabranch_runtime.sources.feed import version_of
from anabranch_runtime.sources.feeds import Feeds
from anabranch_runtime.sources.loads import LOADS, loads_of
from tests.support.scenarios.seeds import mostly_e2e, mostly_slow
from tests.support.surroundings.policy import OPEN
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.fed import KEYS, Killed, damage
from tests.support.worlds.rereads import Rereads

#: Points of the protocol at which the driver is killed.
DEADLY = (Point.CHOOSING, Point.CHOSEN, Point.STAGED, Point.PUBLISHED, Point.COMMITTED)
#: For every third seed the table has no reading query at first.
SEEDS = (2, 24, 28)


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    fetch_ruleset.cache_clear()
    for name in ("loads.QUIET_FIRST", "loads.QUIET", "files.feed.LISTING"):
        monkeypatch.setattr(f"anabranch_runtime.sources.{name}", 0.0)
    monkeypatch.setattr("anabranch_runtime.sources.files.feed.WRITING", 1e18)
    with redis_url() as found:
        yield found


def run(world: Rereads, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    """Run random batches, rereads, additions and kills; then all remaining input."""
    chance: Random = world.chance
    deadly: list[Point | None] = [None]

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


@pytest.mark.parametrize("seed", [*mostly_e2e(SEEDS), *mostly_slow(range(30, 60), 0)])
def test_each_batch_looks_up_one_version(
    seed: int, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = Rereads(url, tmp_path / "fed", seed, unread=seed % 3 == 2)
    run(world, monkeypatch, 24)
    world.verify(world.version)
    versions = world.driver.state.streams["R"].versions
    assert versions is not None
    assert (versions.number, versions.coming) == (world.version, 0)
    if not world.key:
        rows = len(world.rows_of(world.version))
        assert rows_kept(world.driver.state, "R") in (rows, None)


def test_the_version_before_stays_while_the_source_can_not_be_read(
    url: str, tmp_path: Path
) -> None:
    world = Rereads(url, tmp_path / "fed", 0)
    world.add_file()
    world.drain()
    folder, away = world.home / "R", world.home / "away"
    folder.rename(away)
    world.version += 1
    world.written[2] = []
    world.read_anew()
    world.send()
    world.send()
    world.drain()
    assert table_progress(world.driver.state)["R"].version == 1
    assert "can't be listed" in (world.driver.progress.rate_limiter.input.streams["R"].error or "")
    world.verify(1)
    away.rename(folder)
    for path in folder.glob("*.parquet"):
        path.unlink()
    world.add_file()
    world.start()
    world.drain()
    world.send()
    world.send()
    world.drain()
    world.verify(2)
    table = table_progress(world.driver.state)["R"]
    assert (table.version, table.reading) == (2, 0)
    assert table.read_at is not None


def test_the_version_before_stays_while_a_file_is_broken(url: str, tmp_path: Path) -> None:
    world = Rereads(url, tmp_path / "fed", 0)
    world.add_file()
    world.drain()
    world.reread(2)
    (path, *_) = sorted((world.home / "R").glob("*.parquet"))
    whole = path.read_bytes()
    damage(path)
    world.read_anew()
    world.send()
    world.send()
    world.drain()
    assert table_progress(world.driver.state)["R"].version == 1
    world.verify(1)
    stat = path.stat()
    path.write_bytes(whole)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    world.start()
    world.drain()
    world.send()
    world.send()
    world.drain()
    world.verify(2)
    assert table_progress(world.driver.state)["R"].version == 2


def test_rows_are_counted_and_the_version_before_is_dropped(url: str, tmp_path: Path) -> None:
    world = Rereads(url, tmp_path / "fed", 1, unread=True)
    for _ in range(6):
        world.add_file()
    world.drain()
    rows = sum(len(file) for file in world.written[1])
    stored = [n for n, s in world.driver.state.stores.items() if s.streams == ("R",)]

    def kept() -> set[int]:
        stores = world.driver.state.stores
        return {sum(s.rows for s in stores[name].segments) for name in stored}

    assert kept() == {rows}
    assert rows_kept(world.driver.state, "R") == rows
    world.reread(1)
    world.read_anew()
    world.drain()
    rows = len(world.written[2][0])
    assert kept() == {rows}
    assert rows_kept(world.driver.state, "R") == rows


def test_a_redis_stream_is_read_again(url: str, tmp_path: Path) -> None:
    world = Rereads(url, tmp_path / "fed", 0)
    record = world.record("S").model_copy(update={"kind": StreamKind.TABLE})

    def plan(version: int, offset: dict[str, Any]) -> dict[str, Any]:
        records = [record.model_copy(update={"version": version})]
        state = str(world.home / "state")
        return Feeds(records, 2, url, "test", state, OPEN, live=False).plan(offset)

    for n in range(3):
        world.server.xadd(KEYS.stream("S"), {"data": json.dumps({"a": n, "n": n})})
    first = plan(1, {})
    world.server.xtrim(KEYS.stream("S"), maxlen=2, approximate=False)
    second = plan(2, first)
    (before,), (after,) = (loads_of(offset) for offset in (first, second))
    assert version_of(after) == (before, 2)
    assert (first.keys() - {LOADS}, second.keys() - {LOADS}) == ({before}, {after})
    (position,) = second[after].values()
    assert position[1:3] == [3, 1], "two entries were left, of three"
