"""Tests of files that change after they were read, and of reused names: always noticed, and read or
recorded exactly once, whatever the order of changes, batches and restarts.
"""

from __future__ import annotations

import os
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from anabranch_contract.protocol.registered import ColumnRecord, SourceRecord, StreamRecord
from anabranch_runtime.errors import SourceError
from anabranch_runtime.sources.blocks import read_piece
from anabranch_runtime.sources.files import changed
from anabranch_runtime.sources.files.feed import FileFeed, file_feed
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.policy import OPEN


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A clock that jumps: every listing is due, and every change has settled."""
    found = Clock()
    monkeypatch.setattr("time.monotonic", found)
    monkeypatch.setattr("anabranch_runtime.sources.files.feed.SETTLED", 1 << 62)
    monkeypatch.setattr(changed, "SLICE", 1e9)
    return found


class Clock:
    """A clock that only the test advances."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class World:
    """A directory, the feed over it, rows that were read, records of unread files."""

    def __init__(self, home: Path, clock: Clock, policy: str, bad: str = "skip") -> None:
        self.home, self.clock = home, clock
        (home / "in").mkdir()
        self.options = {"type": "csv", "header": "false", "on_bad_file": bad}
        self.options["on_changed_file"] = policy
        self.offset: Any = None
        self.read: list[int] = []
        self.unread: list[str] = []
        self.writes = 0
        self.restart()

    def restart(self) -> None:
        record = StreamRecord(
            name="s",
            columns=(ColumnRecord(name="a", type="bigint"),),
            source=SourceRecord(format="files", path=str(self.home / "in"), options=self.options),
        )
        self.feed: FileFeed = file_feed(record, str(self.home / "state"), OPEN)

    def put(self, name: str, rows: list[int], *, over: bool = False, when: int = 0) -> None:
        """Create a file, or overwrite it in place (``over``)."""
        path = self.home / "in" / name
        target = path if over else path.with_name(f".{name}")
        target.write_text("".join(f"{row}\n" for row in rows))
        self.writes += 1
        stamp = when or 10**9 * (10**6 + self.writes)
        os.utime(target, ns=(stamp, stamp))
        target.rename(path)

    def turn(self, rows: int = 1000) -> bool:
        """Run a batch, if there is one."""
        if not self.feed.waiting(self.offset).rows:
            return False
        end = self.feed.advance(self.offset, rows)
        for piece in self.feed.pieces(self.offset, end, 2):
            if piece.gone is not None:
                self.unread.append(f"{Path(piece.source).name}: {piece.gone.code}")
                continue
            for good, bad in read_piece(piece):
                assert bad is None
                self.read += good.column("a").to_pylist()
        self.offset = end
        return True

    def settle(self) -> None:
        """Let time pass until no more input arrives."""
        for _ in range(4):
            self.clock.now += 100.0
            while self.turn():
                pass


def test_a_change_is_recorded_once_by_default(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, clock, "warn")
    world.put("a", [1, 2])
    world.put("b", [3])
    world.settle()
    world.put("a", [4, 5, 6], over=True)
    (tmp_path / "in" / "b").unlink()
    world.settle()
    world.put("b", [7])
    world.settle()
    world.restart()
    world.settle()
    assert world.read == [1, 2, 3]
    assert world.unread == ["a: file-changed", "b: file-changed"]
    # A file that grows counts as changed.
    with (tmp_path / "in" / "a").open("a") as file:
        file.write("8\n")
    world.settle()
    assert world.unread == ["a: file-changed", "b: file-changed", "a: file-changed"]
    (reason,) = {p.message for p in world.feed._loaded().left_out.values()}
    assert "set on_changed_file to read" in reason


def test_a_change_while_nothing_runs_is_noticed(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, clock, "read")
    world.put("a", [1])
    world.settle()
    world.put("a", [2])
    world.restart()
    world.settle()
    assert (world.read, world.unread) == ([1, 2], [])


def test_the_same_size_and_time_do_not_hide_another_content(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, clock, "read")
    world.put("a", [1], when=10**18)
    world.settle()
    world.put("a", [2], when=10**18)
    world.settle()
    world.put("a", [3], over=True, when=10**18)
    world.settle()
    # Permissions, links and a copy of the same content do not count as changes.
    (tmp_path / "in" / "a").chmod(0o600)
    os.link(tmp_path / "in" / "a", tmp_path / "elsewhere")
    world.put("a", [3], when=10**18)
    world.settle()
    assert (world.read, world.unread) == ([1, 2, 3], [])


def test_a_stream_stops_until_the_change_is_taken_back(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, clock, "stop")
    world.put("a", [1], when=10**18)
    world.settle()
    world.put("a", [9], over=True)
    world.put("b", [2])
    clock.now += 10.0
    world.turn()
    for _ in range(2):
        clock.now += 10.0
        with pytest.raises(SourceError, match="changed") as caught:
            world.turn()
        assert "on_changed_file" in caught.value.remedy
    world.restart()
    world.turn()
    clock.now += 10.0
    with pytest.raises(SourceError, match="changed"):
        world.turn()
    world.put("a", [1], when=10**18)
    world.settle()
    assert (world.read, world.unread) == ([1, 2], [])
    # Or until another policy is set.
    world.put("a", [3], over=True)
    world.options["on_changed_file"] = "read"
    world.restart()
    world.settle()
    assert (world.read, world.unread) == ([1, 2, 3], [])


def test_a_file_that_is_being_written_is_waited_for(tmp_path: Path, clock: Clock) -> None:
    world = World(tmp_path, clock, "read")
    world.put("a", [1])
    world.settle()
    for last in range(2, 10):
        world.put("a", list(range(2, last + 1)), over=True)
        clock.now += 2.0
        assert not world.turn()
    world.settle()
    assert (world.read, world.unread) == ([1, *range(2, 10)], [])
    # A file that keeps changing is recorded.
    for last in range(20):
        world.put("a", [last], over=True)
        clock.now += 2.0
        world.turn()
    assert world.unread == ["a: file-changed"]


def test_looking_at_many_files_takes_a_small_part_of_the_time(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changed, "SLICE", 0.01)
    world = World(tmp_path, clock, "warn")
    for number in range(200):
        world.put(f"{number:03}", [number])
    world.settle()
    looks: list[str] = []
    real = os.stat

    def stat(path: Any, *args: Any, **more: Any) -> os.stat_result:
        if str(path).startswith(str(tmp_path / "in" / "")):
            looks.append(str(path))
            clock.now += 0.001
        return real(path, *args, **more)

    monkeypatch.setattr("os.stat", stat)
    began = clock.now
    seen: set[str] = set()
    while len(seen) < 200:
        looks.clear()
        clock.now += 0.02
        world.turn()
        seen |= set(looks)
        assert len(looks) <= 11
    assert 9.0 < clock.now - began < 15.0


@pytest.mark.parametrize("policy", ["warn", "read"])
def test_a_file_that_changes_before_it_is_read(tmp_path: Path, clock: Clock, policy: str) -> None:
    world = World(tmp_path, clock, policy)
    world.put("a", [1])
    assert world.feed.waiting(None).rows
    world.put("a", [2, 3], over=True)
    world.feed._lengths.clear()
    world.settle()
    world.restart()
    world.settle()
    # The former content is lost, which is recorded; with other policies than read the new one, too.
    assert world.unread == ["a: file-changed"] * (1 if policy == "read" else 2)
    assert world.read == ([2, 3] if policy == "read" else [])


@pytest.mark.parametrize("policy", ["warn", "read"])
@pytest.mark.parametrize("seed", mostly_slow(range(40), 10))
def test_random_histories_of_a_directory(
    tmp_path: Path, clock: Clock, policy: str, seed: int
) -> None:
    """Each content of a name that stays until it is noticed is read or recorded once."""
    chance = random.Random(seed)
    world = World(tmp_path, clock, policy)
    there: dict[str, list[int]] = {}
    used: set[str] = set()
    read: list[int] = []
    recorded: Counter[str] = Counter()
    for rows in range(25):
        name = chance.choice("abcd")
        step = chance.choice(["put", "put", "remove", "append", "touch", "same", "restart"])
        fresh = [rows * 10 + i for i in range(chance.randint(1, 4))]
        if step == "restart":
            world.restart()
        elif step == "remove":
            (tmp_path / "in" / name).unlink(missing_ok=True)
            there.pop(name, None)
        elif step == "put" or name not in there:
            in_place = name in there and chance.random() < 0.5
            world.put(name, fresh, over=in_place)
            there[name] = fresh
            read += fresh if name not in used or policy == "read" else []
            recorded[name] += name in used and policy == "warn"
            used.add(name)
        elif step in ("append", "touch"):
            there[name] = there[name] + (fresh if step == "append" else [])
            world.put(name, there[name], over=True)
            read += there[name] if policy == "read" else []
            recorded[name] += policy == "warn"
        else:
            (tmp_path / "in" / name).chmod(chance.choice([0o600, 0o644]))
        world.turn(chance.choice([1, 3, 1000]))
        if chance.random() < 0.2:
            world.restart()
        world.settle()
    world.restart()
    world.settle()
    assert Counter(world.read) == Counter(read)
    assert Counter(entry[0] for entry in world.unread) == +recorded
