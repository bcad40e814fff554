"""Tests of a standby driver's wait: for the directory's lock, for a lease, or for a
stop request.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from anabranch_contract.protocol.progress import Heartbeat
from anabranch_runtime.control import Control
from anabranch_runtime.driver import turn as turns
from anabranch_runtime.driver.turn import Standby, turn
from anabranch_runtime.errors import StateError
from anabranch_runtime.storage import lease as leases
from anabranch_runtime.storage.durable import Durable, Mirrored
from anabranch_runtime.storage.object_store import open_remote
from anabranch_runtime.storage.pipeline_lock import exclusive
from tests.support.surroundings.redis import redis_url


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    monkeypatch.setattr(turns, "CHECK", 0.02)
    with redis_url() as url:
        yield Control(url, "turns", "next")


class Waiting:
    """A waiting standby in a thread."""

    def __init__(self, root: Path, storage: Durable, control: Control) -> None:
        self.warmed, self.mine, self.at = 0, None, 0.0
        self._given = (root, storage, Standby(control, self._warm))
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    mine: bool | None

    def _warm(self) -> None:
        self.warmed += 1

    def _run(self) -> None:
        with turn(*self._given) as mine:
            self.mine, self.at = mine, time.monotonic()

    def ended(self) -> bool | None:
        """Wait for the thread's end; return whether it may run."""
        self._thread.join(120)
        return self.mine


def _heartbeat(control: Control) -> Heartbeat | None:
    with Redis.from_url(control.url, decode_responses=True) as server:
        text = server.get(control.keys.standby)
        return None if text is None else Heartbeat.loads(str(text))


def _until_warm(waiting: Waiting) -> None:
    deadline = time.monotonic() + 120
    while waiting.warmed < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_standby_gets_the_lock_at_the_end_of_its_holder(tmp_path: Path, control: Control) -> None:
    with exclusive(tmp_path):
        waiting = Waiting(tmp_path, Durable(tmp_path), control)
        _until_warm(waiting)
        assert waiting.mine is None
        found = _heartbeat(control)
        assert found is not None
        assert found.run == "next"
        released = time.monotonic()
    assert waiting.ended() is True
    assert waiting.at - released < 5.0
    assert _heartbeat(control) is None


def test_a_standby_with_no_other_process_prepares_nothing(tmp_path: Path, control: Control) -> None:
    waiting = Waiting(tmp_path, Durable(tmp_path), control)
    assert waiting.ended() is True
    assert waiting.warmed == 0


def test_a_stop_request_ends_the_wait(tmp_path: Path, control: Control) -> None:
    with exclusive(tmp_path):
        waiting = Waiting(tmp_path, Durable(tmp_path), control)
        _until_warm(waiting)
        with Redis.from_url(control.url) as server:
            server.set(control.keys.stop, "1")
        assert waiting.ended() is False


def test_without_a_standby_a_second_process_is_refused(tmp_path: Path) -> None:
    with exclusive(tmp_path):
        with pytest.raises(StateError) as caught, turn(tmp_path, Durable(tmp_path), None):
            pass
        assert caught.value.code == "state-in-use"


def test_a_standby_takes_a_lease_with_missed_renewals(
    tmp_path: Path, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A standby takes the lease after three missed renewals: seconds, since an owner on a busy
    # machine pauses.
    monkeypatch.setattr(leases, "OFTEN", 0.5)
    monkeypatch.setattr(turns, "LOOK_AT_STORE", 0.02)
    monkeypatch.setitem(turns._HELD, "store-in-use", 0.02)
    remote = open_remote(f"file://{tmp_path}/objects")
    owner = leases.StoreLease(remote, tmp_path / "one", standby=True)
    root = tmp_path / "two"
    root.mkdir()
    with owner.held():
        waiting = Waiting(root, Mirrored(root, remote), control)
        _until_warm(waiting)
        time.sleep(1.25 * leases.MISSED * leases.OFTEN)
        assert waiting.mine is None, "a lease that is renewed is not taken"
        # As if the owner were suspended: no renewal, and no end.
        owner._ended.set()
        silent = time.monotonic()
        assert waiting.ended() is True
        assert 0.5 < waiting.at - silent < 60
    assert waiting.mine


def test_a_lease_given_up_is_taken_at_once(
    tmp_path: Path, control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leases, "OFTEN", 20.0)
    remote = open_remote(f"file://{tmp_path}/objects")
    root = tmp_path / "two"
    root.mkdir()
    with leases.StoreLease(remote, tmp_path / "one", standby=True).held():
        waiting = Waiting(root, Mirrored(root, remote), control)
        _until_warm(waiting)
        released = time.monotonic()
    assert waiting.ended() is True
    assert waiting.at - released < leases.OFTEN
