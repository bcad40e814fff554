"""Tests of packs that are fetched from the object store before they are needed."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage import ahead, durable
from anabranch_runtime.storage.ahead import AT_ONCE, Prefetcher, bring, missing
from anabranch_runtime.storage.durable import Durable
from anabranch_runtime.storage.segment import Segment
from tests.support.cases.states import segment

PATIENCE = 120


class Keeper(Durable):
    """Fetches by writing an empty file; blocks while it is not ``free``."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.free, self.begun = threading.Event(), threading.Semaphore(0)
        self.lost: set[str] = set()

    def fetch(self, wanted: Segment) -> bool:
        self.begun.release()
        assert self.free.wait(PATIENCE)
        if wanted.path in self.lost:
            raise StateError("missing-pack", f"{wanted.path} is missing")
        (self.root / wanted.path).touch()
        return True


@pytest.fixture
def keeper(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Keeper:
    (tmp_path / "segments").mkdir()
    found = Keeper(tmp_path)
    monkeypatch.setitem(durable._KEPT, str(tmp_path), found)
    return found


def _segments(count: int) -> list[Segment]:
    return [segment("R", (n, n)) for n in range(count)]


def _packs(root: Path) -> int:
    return len(list((root / "segments").iterdir()))


def test_packs_are_fetched_side_by_side(keeper: Keeper, tmp_path: Path) -> None:
    some, done = _segments(2 * AT_ONCE), []
    (tmp_path / some[0].path).touch()
    wanted = missing(str(tmp_path), [*some, *some])
    assert len(wanted) == len(some) - 1
    work = threading.Thread(target=bring, args=(str(tmp_path), wanted, lambda: done.append(1)))
    work.start()
    for _ in range(AT_ONCE):
        assert keeper.begun.acquire(timeout=PATIENCE)
    keeper.free.set()
    work.join(PATIENCE)
    assert _packs(tmp_path) == len(some)
    assert len(done) == len(wanted)


def test_a_pack_that_is_needed_and_lost_is_an_error(keeper: Keeper, tmp_path: Path) -> None:
    keeper.free.set()
    some = _segments(3)
    keeper.lost = {some[1].path}
    with pytest.raises(StateError, match="is missing"):
        bring(str(tmp_path), some, lambda: None)


def test_what_is_fetched_ahead_is_fetched_beside(keeper: Keeper, tmp_path: Path) -> None:
    some = _segments(4)
    keeper.lost = {some[1].path}
    one = Prefetcher()
    one.begin(str(tmp_path), some)
    assert keeper.begun.acquire(timeout=PATIENCE)
    # No second fetch of a pack is begun while one is running.
    one.begin(str(tmp_path), _segments(8))
    keeper.free.set()
    for _ in range(3):
        assert keeper.begun.acquire(timeout=PATIENCE)
    assert one._thread is not None
    one._thread.join(PATIENCE)
    assert _packs(tmp_path) == 3
    assert missing(str(tmp_path), some) == [some[1]]


def test_who_stops_waits_for_the_pack_that_is_under_way(keeper: Keeper, tmp_path: Path) -> None:
    one = Prefetcher()
    one.begin(str(tmp_path), _segments(4))
    assert keeper.begun.acquire(timeout=PATIENCE)
    stopping = threading.Thread(target=one.stop)
    stopping.start()
    assert one._over.wait(PATIENCE)
    keeper.free.set()
    stopping.join(PATIENCE)
    assert _packs(tmp_path) == 1
    one.begin(str(tmp_path), _segments(4))
    assert one._thread is not None
    one._thread.join(PATIENCE)
    assert _packs(tmp_path) == 4


def test_the_thread_gives_way(monkeypatch: pytest.MonkeyPatch) -> None:
    given: list[int] = []
    monkeypatch.setattr("os.setpriority", lambda *a: given.append(a[2]))
    ahead.give_way()
    assert given == [10]
