"""Tests of power failures at random steps of batches: unsynced writes are lost, and results stay
exact.

The model of a disk: the content of a file is safe once the file is synced, or its file system. Its
names change in the order of the operations, as in a journal, and all changes before the sync of a
folder or of the file system are safe. Of later changes a failure leaves the first few, and of the
content that was not synced any part.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random, choice
from types import FrameType
from typing import Any

import pytest

from anabranch_contract.connectors.sinks import LONGEST_INTERVAL, SinkKind, SinkSpec
from anabranch_runtime.driver.driver import Driver
from anabranch_runtime.recovery.journal import Journal
from anabranch_runtime.sinks import publisher as publishing
from anabranch_runtime.sinks.delivery import Delivery
from anabranch_runtime.state.manifest import Manifests
from anabranch_runtime.storage import documents
from anabranch_runtime.storage.durable import Mirrored
from anabranch_runtime.storage.segment_cache import close_all
from tests.support.cases.states import RS
from tests.support.scenarios.seeds import mostly_slow
from tests.support.surroundings.deliveries import sink
from tests.support.worlds.driven import Killed, expected, publish, results
from tests.support.worlds.random_cuts import RandomCuts

#: Number of the source's rows.
TOTAL = 30
#: Files on the disk of a pipeline: path -> inode; folders have None.
Names = dict[str, int | None]


@dataclass
class Disk:
    """Simulated disk of the folders ``parts`` below ``folder``.

    Attributes:
        dies: the power fails before this operation, counted from the start, in the main thread, or
            in another one (``beside``).
    """

    folder: Path
    parts: tuple[str, ...]
    dies: int = -1
    beside: bool = False
    _steps: int = 0
    _dead: bool = False
    #: Names after each change since names were last synced, oldest first.
    _names: list[Names] = field(default_factory=lambda: [{}])
    #: Inode -> its synced content.
    _synced: dict[int, bytes] = field(default_factory=dict)
    _lock: threading.RLock = field(default_factory=threading.RLock)

    @property
    def _held(self) -> Path:
        """Folder of hard links to all files, so that no inode is reused."""
        return self.folder / "held"

    @contextmanager
    def powered(self) -> Iterator[None]:
        """Context in which the operations of this process are watched; it may be killed at one."""
        self._held.mkdir(exist_ok=True)
        self._steps = 0
        fsync = os.fsync
        with pytest.MonkeyPatch.context() as patch:
            for name in ("rename", "unlink", "mkdir"):
                patch.setattr(Path, name, self._watched(getattr(Path, name)))
            patch.setattr(os, "fsync", lambda handle: self._sync(handle, fsync))
            patch.setattr(documents, "_SYNCFS", self._sync_all)
            yield

    def fail(self, random: Random) -> None:
        """Change the files to what a power failure leaves."""
        with self._lock:
            self._look()
            names = random.choice(self._names) if random.random() < 0.7 else self._names[0]
            thorough = random.random() < 0.3
            contents = {
                path: None if inode is None else self._left(inode, random, thorough=thorough)
                for path, inode in names.items()
            }
            for part in (*self.parts, "held"):
                shutil.rmtree(self.folder / part, ignore_errors=True)
            self._held.mkdir()
            for path, content in sorted(contents.items()):
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                if content is None:
                    (self.folder / path).mkdir(exist_ok=True)
                else:
                    (self.folder / path).write_bytes(content)
            self._names, self._synced, self._dead = [{}], {}, False
            self._safe()

    def _left(self, inode: int, random: Random, *, thorough: bool) -> bytes:
        """Return a file's content after the failure; ``thorough``: without any unsynced content."""
        synced, now = self._synced.get(inode), (self._held / str(inode)).read_bytes()
        if synced == now:
            return now
        some = b"" if synced is None else synced
        pairs = enumerate(zip(some, now, strict=False))
        safe = next((n for n, (one, other) in pairs if one != other), min(len(some), len(now)))
        part = now[: random.randint(safe, len(now))]
        return some if thorough else random.choice((some, now, part, part.ljust(len(now), b"\0")))

    def _is_here(self, path: Path | str) -> bool:
        return any(Path(path).is_relative_to(self.folder / part) for part in self.parts)

    def _step(self) -> None:
        if _is_beside() == self.beside:
            self._dead = self._dead or self._steps == self.dies
            self._steps += 1
        if self._dead:
            raise Killed

    def _watched(self, operation: Callable[..., Any]) -> Callable[..., Any]:
        def watched(path: Path, *given: Any, **named: Any) -> Any:
            if not self._is_here(path):
                return operation(path, *given, **named)
            with self._lock:
                self._step()
                self._look()
                found = operation(path, *given, **named)
                self._look()
                return found

        return watched

    def _sync(self, handle: int, fsync: Callable[[int], None]) -> None:
        _take_time()
        path = os.readlink(f"/proc/self/fd/{handle}")
        if not self._is_here(path):
            fsync(handle)
            return
        with self._lock:
            self._step()
            found = os.fstat(handle)
            if stat.S_ISDIR(found.st_mode):
                self._look()
                self._names = self._names[-1:]
            else:
                self._hold(Path(path), found.st_ino)
                self._synced[found.st_ino] = Path(path).read_bytes()

    def _sync_all(self, _: int) -> int:
        _take_time()
        with self._lock:
            self._step()
            self._safe()
        return 0

    def _safe(self) -> None:
        """Mark all files and names as synced."""
        self._look()
        self._names = self._names[-1:]
        for inode in self._names[-1].values():
            if inode is not None:
                self._synced[inode] = (self._held / str(inode)).read_bytes()

    def _look(self) -> None:
        found: Names = {}
        for part in self.parts:
            for path in (self.folder / part).rglob("*"):
                # Staging folders are removed as a whole, maybe by another thread.
                with suppress(FileNotFoundError):
                    status = path.stat()
                    is_folder = stat.S_ISDIR(status.st_mode)
                    if not is_folder:
                        self._hold(path, status.st_ino)
                    name = path.relative_to(self.folder).as_posix()
                    found[name] = None if is_folder else status.st_ino
        if found != self._names[-1]:
            self._names.append(found)

    def _hold(self, path: Path, inode: int) -> None:
        with suppress(FileExistsError):
            os.link(path, self._held / str(inode))


def _is_beside() -> bool:
    return threading.current_thread() is not threading.main_thread()


#: Functions in which the driver waits for syncs in the background.
_WAITS = {f.__code__ for f in (Journal.wait, Journal.settle, Manifests.commit)}


def _take_time() -> None:
    """Delay half of the background syncs until the main thread waits for them."""
    end = time.monotonic() + 1.0
    if _is_beside() and choice((True, False)):
        while not _is_awaited() and time.monotonic() < end:
            time.sleep(0.001)


def _is_awaited() -> bool:
    """Whether the main thread waits for a sync."""
    main = threading.main_thread().ident
    assert main is not None
    frame: FrameType | None = sys._current_frames()[main]
    while frame is not None and frame.f_code not in _WAITS:
        frame = frame.f_back
    return frame is not None


@dataclass
class Notebook:
    """External sink that keeps its rows: a repeated number must have the same rows."""

    rows: dict[int, list[int]] = field(default_factory=dict)

    def write(self, delivery: Delivery) -> None:
        """Write a delivery's rows."""
        rows = sorted(delivery.read()["b"].to_pylist())
        assert self.rows.setdefault(delivery.batch, rows) == rows, "other rows"

    @property
    def everything(self) -> list[int]:
        """Return all rows, sorted."""
        return sorted(row for rows in self.rows.values() for row in rows)


def ended(one: Driver) -> None:
    """Wait for the threads of a killed driver."""
    one._syncer.shutdown()
    one.durability.choices._writer.shutdown()
    storage = one.durability.storage
    if isinstance(storage, Mirrored):
        storage._settle()
        if storage._tidying is not None:
            storage._tidying.result()


def live(log: RandomCuts, disk: Disk, notebook: Notebook, events: Counter[str]) -> bool:
    """Run a pipeline until the power fails; return whether it had finished before."""
    random, one = log.random, None
    disk.beside = random.random() < 0.5
    disk.dies = random.randrange(15 if disk.beside else 100)
    with disk.powered():
        try:
            one = log.start()
            one.publisher.writers[SinkKind.TABLE] = notebook.write
            while log.step(one):
                one.publisher.retry(now=random.random() < 0.3)
                events["batches"] += 1
            one.publisher.finish()
        except Killed:
            events["failures"] += 1
        else:
            return True
        finally:
            if one is not None:
                ended(one)
                events["committed"] = one.state.next_batch
    close_all()
    disk.fail(random)
    return False


def lived(log: RandomCuts, seed: int) -> Counter[str]:
    """Run a pipeline on a disk with repeated power failures; return counts of events."""
    log.random = Random(seed)
    hour = SinkSpec(commit_interval=LONGEST_INTERVAL)
    publish(log.url, 0, {"q": RS, "p": RS, "out": RS}, {"p": hour, "out": sink("notebook")})
    disk, notebook, events = Disk(log.folder, ("state", "results")), Notebook(), Counter[str]()
    while not live(log, disk, notebook, events):
        numbers = [int(p.stem) for p in (log.folder / "state/manifest").glob("*.json")]
        # A committed batch is never lost.
        assert max(numbers, default=0) >= events["committed"]
    for query in ("q", "p"):
        assert results(log.folder, query) == expected(log.total), query
    assert notebook.everything == expected(log.total)
    return events


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(publishing, "FIRST_PAUSE", 0.0)


@pytest.mark.parametrize("seed", mostly_slow(range(1, 41)))
@pytest.mark.parametrize(
    "stored", [False, pytest.param(True, marks=pytest.mark.e2e)], ids=["disk", "store"]
)
def test_a_power_failure_at_any_step_loses_and_doubles_nothing(
    url: str, tmp_path: Path, stored: bool, seed: int
) -> None:
    settings = {"object_store": (tmp_path / "objects").as_uri()} if stored else {}
    log = RandomCuts(url, tmp_path, total=TOTAL, settings=settings)
    events = lived(log, seed)
    assert events["failures"]
