"""Input that can't be read: one stream stops or goes on, the others do, and everything is accounted
for. The driver, the sources and the tasks are real; what Spark does is played (``support.fed``).
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from anabranch_contract.protocol.intake import StreamIntake
from anabranch_contract.protocol.progress import Progress
from anabranch_runtime.epochs.task_report import TaskReport
from anabranch_runtime.faults import Point
from anabranch_runtime.task.context import BatchContext
from tests.support.worlds.fed import KEYS, Fed, Killed, damage


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retry without a pause."""
    for name in ("REST", "REST_FACTOR", "TRIAL_REST", "LONGEST_TRIAL_REST"):
        monkeypatch.setattr(f"anabranch_runtime.sources.feeds.{name}", 0.0)
    monkeypatch.setattr("anabranch_runtime.sources.files.feed.LISTING", 0.0)
    # Changes of files that were read, or given up, are tested in files/test_changed.py.
    monkeypatch.setattr("anabranch_runtime.sources.files.changed.SETTLED", 3600.0)
    monkeypatch.setattr("anabranch_runtime.sources.files.changed.PATIENCE", 3600.0)


@pytest.fixture
def fed(url: str, tmp_path: Path) -> Iterator[Fed]:
    found = Fed(url, tmp_path / "fed")
    yield found
    found.server.close()


def intake(fed: Fed, stream: str) -> StreamIntake:
    """Return the state of a stream's input, as the runtime reports it."""
    return intakes(fed)[stream]


def intakes(fed: Fed) -> dict[str, StreamIntake]:
    """Return the state of the input of all streams."""
    fed.driver.report("running")
    text: Any = fed.server.get(KEYS.runtime)
    return Progress.loads(text).input.intake


def replaced(path: Path) -> None:
    path.write_bytes(path.read_bytes() * 2)


BAD: dict[str, Callable[[Path], None]] = {
    "damaged": damage,
    "removed": lambda path: path.unlink(),
    "replaced": replaced,
}


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_goes_bad_between_planning_and_reading_holds_its_stream_alone(
    fed: Fed, kind: str
) -> None:
    good, bad = fed.file("a", [1, 2, 3]), fed.file("b", [1, 2])
    content, stat = bad.read_bytes(), bad.stat()
    fed.push([1, 2])
    fed.between = lambda: BAD[kind](bad)
    assert fed.turn()
    # Earlier files are read, later ones wait, and other streams continue.
    assert [r for r, _ in fed.results()] == [fed.files["a"][i][1] for i in (1, 0)]
    assert "on_bad_file" in (fed.held("R") or "")
    assert str(bad) in (intake(fed, "R").error or "")
    fed.file("c", [1])
    fed.push([3])
    for _ in range(3):
        fed.turn()
    assert fed.driver.state.streams["S"].input == 3
    assert fed.driver.state.streams["R"].input == 3
    fed.start()
    assert fed.held("R")
    # When the file is restored, it is read.
    bad.write_bytes(content)
    os.utime(bad, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    fed.drain()
    assert fed.held("R") is None
    assert intake(fed, "R").error is None
    assert not fed.recorded
    fed.check()
    assert good.exists()


@pytest.mark.parametrize("kind", BAD)
def test_a_file_that_goes_bad_is_recorded_once_where_the_stream_skips_such(
    fed: Fed, kind: str
) -> None:
    fed.change("R", on_bad_file="skip")
    fed.file("a", [1] * 20)
    bad = fed.file("b", [1] * 30)
    fed.push([1])
    fed.between = lambda: BAD[kind](bad)
    fed.turn()
    fed.file("c", [1])
    fed.drain()
    fed.start()
    fed.drain()
    ((stream, piece),) = fed.recorded
    assert (stream, piece.source, piece.first) == ("R", str(bad), 0)
    assert piece.reason
    found = intake(fed, "R")
    assert (found.error, found.lost, found.unread.pieces) == (None, 1, 1)
    assert found.unread.last == (piece,)
    fed.check()


def test_a_bad_file_of_many_batches_is_recorded_once_whatever_is_repeated(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed.change("R", on_bad_file="skip")
    fed.push([1])
    bad = fed.file("a", [1] * 400)
    fed.turn()
    damage(bad, groups=range(pq.read_metadata(bad).num_row_groups))
    fed.file("b", [1] * 5)
    for point in (Point.LEFT_OUT, Point.STAGED, Point.PUBLISHED, None, Point.COMMITTED, None):
        with monkeypatch.context() as patch:
            if point is not None:
                die_at(patch, point)
            try:
                fed.turn()
            except Killed:
                fed.start()
    fed.start()
    fed.drain()
    ((_, piece),) = fed.recorded
    assert piece.rows is not None
    assert (piece.first, piece.last) == (400 - piece.rows, 400)
    assert fed.driver.state.next_batch - piece.batch > 2
    assert intake(fed, "R").unread.pieces == intake(fed, "R").lost == 1
    fed.check()


def test_a_held_stream_goes_on_after_the_file_once_it_may_skip_it(fed: Fed) -> None:
    fed.file("a", [1] * 10)
    bad = fed.file("b", [2] * 10)
    fed.push([1, 2])
    fed.between = lambda: damage(bad)
    fed.turn()
    fed.file("c", [2] * 5)
    fed.drain()
    assert fed.driver.state.streams["R"].input == 10
    fed.change("R", on_bad_file="skip")
    fed.drain()
    assert [p.rows for _, p in fed.recorded] == [10]
    fed.check()


@pytest.mark.parametrize("content", [b"nothing of the kind", b""])
def test_a_file_that_is_none_stops_its_stream_or_is_skipped(fed: Fed, content: bytes) -> None:
    (fed.home / "R" / "0").write_bytes(content)
    os.utime(fed.home / "R" / "0", ns=(0, 0))
    fed.files["0"] = []
    fed.file("a", [1, 2])
    fed.push([1])
    fed.turn()
    assert fed.driver.state.streams["S"].input == 1
    assert "R" not in fed.driver.state.streams or not fed.driver.state.streams["R"].input
    assert "is not a parquet file" in (intake(fed, "R").error or "")
    fed.change("R", on_bad_file="skip")
    fed.drain()
    fed.start()
    fed.drain()
    ((_, piece),) = fed.recorded
    assert piece.code == "bad-file"
    assert (piece.first, piece.last, piece.rows) == (0, None, None)
    fed.check()


def test_a_file_that_had_gone_before_it_was_read_is_recorded(fed: Fed) -> None:
    fed.file("a", [1] * 50)
    gone = fed.file("b", [1])
    fed.file("c", [1])
    fed.push([1])
    fed.options["R"]["type"] = "parquet"
    fed.reader._feeds[next(i for i in fed.reader.feeds if i.startswith("R"))].waiting(None)
    gone.unlink()
    fed.drain()
    assert [p.code for _, p in fed.recorded] == ["missing-file"]
    fed.check()


def test_entries_removed_between_planning_and_reading_hold_their_stream_alone(fed: Fed) -> None:
    fed.push([1, 2, 3, 4])
    fed.file("a", [1, 2, 3, 4])
    first, second, *_ = fed.entries
    fed.between = lambda: fed.remove([first, second])
    fed.turn()
    assert "on_loss" in (fed.held("S") or "")
    fed.file("b", [3])
    fed.drain()
    assert fed.driver.state.streams["R"].input == 5
    assert fed.results() == []
    fed.change("S", on_loss="skip")
    fed.drain()
    ((_, piece),) = fed.recorded
    assert (piece.entries, piece.unit) == (2, "entries")
    assert intake(fed, "S").lost == 2
    fed.check()


def test_entries_removed_are_counted_once_where_the_stream_skips_such(fed: Fed) -> None:
    fed.change("S", on_loss="skip")
    fed.push([1, 2, 3, 4])
    fed.file("a", [1, 2, 3, 4])
    first, second, third, _ = fed.entries
    fed.between = lambda: fed.remove([second])
    fed.turn()
    assert [p.entries for _, p in fed.recorded] == [1]
    fed.push([1, 2])
    fed.server.xtrim(KEYS.stream("S"), maxlen=1, approximate=False)
    fed.removed |= set(list(fed.entries)[:-1]) - {first, third, list(fed.entries)[3]}
    fed.drain()
    assert [p.entries for _, p in fed.recorded] == [1, 1]
    assert intake(fed, "S").lost == 2
    fed.check()


def test_a_redis_stream_that_was_replaced_is_recorded(fed: Fed) -> None:
    fed.change("S", on_loss="skip")
    fed.push([1] * 3)
    fed.file("a", [1])
    fed.drain()
    fed.server.delete(KEYS.stream("S"))
    fed.push([1])
    fed.drain()
    (feed,) = (f for f in fed.driver.state.feeds.values() if f.stream == "S")
    assert [(p.code, p.rows, p.entries) for p in feed.unread.last] == [
        ("stream-replaced", None, None)
    ]
    assert len(fed.results()) == 4


# --- streams that are deleted ------------------------------------------------------------------


def test_a_stream_that_is_deleted_with_held_input_leaves_the_others(fed: Fed) -> None:
    bad = fed.file("a", [1] * 5)
    fed.push([1])
    fed.between = lambda: damage(bad)
    fed.turn()
    assert fed.held("R")
    fed.registered = {"S"}
    fed.start()
    assert "R" not in intakes(fed)
    fed.push([2])
    fed.drain()
    assert not fed.driver.state.feeds
    assert fed.results("s") == sorted(fed.entries.values())


def test_a_batch_that_was_begun_is_repeated_though_its_stream_is_gone(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    fed.file("a", [1] * 5)
    fed.push([1])
    with monkeypatch.context() as patch:
        die_at(patch, Point.PUBLISHED)
        with pytest.raises(Killed):
            fed.turn()
    fed.registered = {"S"}
    fed.start()
    fed.drain()
    assert fed.results("s") == sorted(fed.entries.values())
    assert fed.results("r") == []


def test_rows_of_a_stream_that_is_another_now_are_passed_over_until_a_ruleset_knows_it(
    fed: Fed,
) -> None:
    fed.file("a", [1] * 5)
    fed.push([1])
    fed.turn()
    before = fed.results()
    # Registered again with other columns, while the old rules are still in force.
    fed.columns["S"] = (("a", "string"), ("other", "double"))
    fed.options["S"] = {"keys": "another"}
    fed.server.xadd("another", {"data": '{"a": "1", "other": 1.5}'})
    fed.start()
    fed.file("b", [1] * 3)
    fed.drain()
    assert fed.driver.state.streams["S"].input == 2
    assert len(fed.results()) == len(before) + 3
    assert len(fed.results("s")) == 1


# --- kills, and everything at random -----------------------------------------------------------


def die_at(monkeypatch: pytest.MonkeyPatch, point: Point) -> None:
    """Kill the driver the next time it reaches ``point``."""

    def reach(here: Point) -> None:
        if here is point:
            monkeypatch.undo()
            raise Killed

    monkeypatch.setattr("anabranch_runtime.driver.driver.reach", reach)


def test_a_batch_that_is_killed_is_dealt_alike_when_it_is_repeated(
    fed: Fed, monkeypatch: pytest.MonkeyPatch
) -> None:
    dealt: list[Any] = []
    job = fed._job

    def seen(context: BatchContext) -> list[TaskReport]:
        dealt.append(context.input.shares)
        return job(context)

    monkeypatch.setattr(fed, "_job", seen)
    monkeypatch.setattr("anabranch_runtime.sources.batch_input.WORTH", 0)
    for name in "abc":
        fed.file(name, [1] * 30)
        fed.push([1] * 5)
        fed.turn()
    batch = fed.driver.state.next_batch - 1
    choice = fed.driver.durability.choices.get(batch)
    assert choice is not None
    assert choice.costs.keys() == {"R", "S"}
    fed.file("d", [1] * 30)
    fed.push([1] * 20)
    with monkeypatch.context() as patch:
        die_at(patch, Point.PUBLISHED)
        with pytest.raises(Killed):
            fed.turn()
    fed.start()
    # Costs measured since would divide the batch differently.
    costs = {"R": 1e-9, "S": 1.0}
    monkeypatch.setattr("anabranch_runtime.driver.driver.arrival_costs", lambda *_: costs)
    fed.turn()
    assert dealt[-1] == dealt[-2]
    fed.drain()
    fed.check()


@pytest.mark.parametrize("policy", ["stop", "skip"])
@pytest.mark.parametrize(
    "point", [Point.CHOSEN, Point.LEFT_OUT, Point.STAGED, Point.PUBLISHED, Point.COMMITTED]
)
def test_a_batch_that_is_killed_leaves_out_the_same_when_it_is_repeated(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, point: Point, policy: str
) -> None:
    fed.change("R", on_bad_file=policy)
    fed.file("a", [1] * 10)
    bad = fed.file("b", [1] * 10)
    content, stat = bad.read_bytes(), bad.stat()
    fed.push([1, 1])
    fed.between = lambda: damage(bad)
    with monkeypatch.context() as patch:
        die_at(patch, point)
        with pytest.raises(Killed):
            fed.turn()
    # When results may have been published, an omitted file stays omitted.
    bad.write_bytes(content)
    os.utime(bad, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    fed.start()
    fed._account()
    if fed.driver.state.next_batch == 0:
        fed.turn()
    read = fed.driver.state.streams["R"].input
    assert read == (20 if point is Point.CHOSEN else 10)
    fed.drain()
    assert len(fed.recorded) == (0 if point is Point.CHOSEN or policy == "stop" else 1)
    fed.check()


@pytest.mark.parametrize("seed", range(8))
def test_whatever_goes_bad_and_whenever_results_are_those_of_what_was_read(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    run_at_random(Fed(url, tmp_path / "fed"), monkeypatch, random.Random(seed), 40)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 160))
def test_many_times_whatever_goes_bad_results_are_those_of_what_was_read(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    run_at_random(Fed(url, tmp_path / "fed"), monkeypatch, random.Random(seed), 120)


def run_at_random(
    fed: Fed, monkeypatch: pytest.MonkeyPatch, chance: random.Random, steps: int
) -> None:
    """Input, damage, repairs, kills and changed policies in random order; at the end all bad files
    are skipped.
    """
    whole: dict[Path, tuple[bytes, os.stat_result]] = {}

    def keys(most: int) -> list[int]:
        return [chance.randrange(12) for _ in range(chance.randrange(1, most))]

    def spoil() -> None:
        if chance.random() < 0.6:
            files = [
                p for p in (fed.home / "R").iterdir() if p not in whole and p.name in fed.found
            ]
            if files:
                path = chance.choice(sorted(files))
                whole[path] = (path.read_bytes(), path.stat())
                BAD[chance.choice(sorted(BAD))](path)
        else:
            entries = [e for e in fed.entries if e not in fed.removed]
            fed.remove(chance.sample(entries, min(len(entries), chance.randrange(4))))

    def mend() -> None:
        for path, (content, stat) in whole.items():
            path.write_bytes(content)
            os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        whole.clear()

    # Entries removed before the first look are not lost.
    fed.push([1])
    fed.turn()
    for step in range(steps):
        action = chance.random()
        if action < 0.25:
            fed.file(f"{step:04d}", keys(50))
        elif action < 0.4:
            fed.push(keys(30))
        elif action < 0.5:
            spoil()
        elif action < 0.55:
            mend()
        elif action < 0.6:
            stream, option = chance.choice([("R", "on_bad_file"), ("S", "on_loss")])
            fed.change(stream, **{option: chance.choice(["stop", "skip"])})
        else:
            if chance.random() < 0.5:
                fed.between = spoil
            with monkeypatch.context() as patch:
                if chance.random() < 0.3:
                    die_at(patch, chance.choice([Point.CHOSEN, Point.LEFT_OUT, Point.PUBLISHED]))
                try:
                    fed.turn()
                except Killed:
                    fed.start()
    fed.change("R", on_bad_file="skip")
    fed.change("S", on_loss="skip")
    fed.drain()
    assert not fed.held("R")
    assert not fed.held("S")
    fed.check()
