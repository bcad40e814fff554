"""Tests of the heartbeat: present while the main loop runs, gone when it hangs or has ended."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator

import pytest
from redis import Redis
from redis.exceptions import AuthenticationError, ConnectionError

from anabranch_contract.protocol.keys import HEARTBEAT_MILLISECONDS
from anabranch_contract.protocol.progress import Heartbeat
from anabranch_runtime.__main__ import _without_passwords
from anabranch_runtime.control import Control
from anabranch_runtime.driver.exit_cause import redis_away, report_cause
from anabranch_runtime.driver.reporting import heartbeat
from anabranch_runtime.driver.reporting.heartbeat import Heart
from anabranch_runtime.errors import StateError
from tests.support.surroundings.redis import redis_url
from tests.support.worlds.processes import wait_until


@pytest.fixture
def control(monkeypatch: pytest.MonkeyPatch) -> Iterator[Control]:
    monkeypatch.setattr(heartbeat, "EVERY", 0.02)
    with redis_url() as url:
        yield Control(url, "beats", "this")


def _read(server: Redis, key: str) -> Heartbeat | None:
    text = server.get(key)
    return None if text is None else Heartbeat.loads(str(text))


def _silent(server: Redis, key: str) -> bool:
    """Whether no heartbeat comes for some periods, except one that had begun before."""
    server.delete(key)
    time.sleep(0.2)
    return _read(server, key) is None


def test_it_beats_for_as_long_as_the_main_loop_is_well(control: Control) -> None:
    key = control.keys.heartbeat
    with Redis.from_url(control.url, decode_responses=True) as server:
        with Heart(control).beating() as heart:
            wait_until("a heartbeat", lambda: _read(server, key) is not None)
            assert _read(server, key) == Heartbeat(
                "this", os.getpid(), os.uname().nodename, "starting"
            )
            assert 0 < int(str(server.pttl(key))) <= HEARTBEAT_MILLISECONDS
            heart.working()
            wait_until("another state", lambda: _state(server, key) == "working")
            heart.well(-1.0)
            # A main loop that hangs has no heartbeat.
            wait_until("silence", lambda: _silent(server, key))
            heart.well()
            wait_until("a heartbeat", lambda: _read(server, key) is not None)
        assert _read(server, key) is None, "it ends with the run"


def _state(server: Redis, key: str) -> str:
    found = _read(server, key)
    return "" if found is None else found.state


def test_another_runs_heartbeat_is_left_alone(control: Control) -> None:
    with Redis.from_url(control.url, decode_responses=True) as server:
        with Heart(control).beating() as heart:
            heart.well(-1.0)
            wait_until("silence", lambda: _silent(server, control.keys.heartbeat))
            Control(control.url, "beats", "next").beat("working")
        found = _read(server, control.keys.heartbeat)
        assert found is not None
        assert found.run == "next"


def test_a_heartbeat_of_a_later_release_can_be_read() -> None:
    assert Heartbeat.loads('{"run": "r", "pid": 1, "host": "h", "new": 1}').run == "r"


def test_an_error_is_told_as_data() -> None:
    here, there = os.pipe()
    report_cause(there, "run-1", StateError("disk-full", "no space for /x", remedy="make room"))
    os.close(there)
    with os.fdopen(here) as told:
        assert json.loads(told.read()) == {
            "run": "run-1",
            "code": "disk-full",
            "message": "no space for /x",
            "remedy": "make room",
        }


def test_whatever_is_raised_has_a_code_and_no_password() -> None:
    here, there = os.pipe()
    report_cause(there, "run-1", ValueError("cannot reach redis://:secret@host/0"))
    report_cause(None, "run-1", ValueError("nobody listens"))
    os.close(there)
    with os.fdopen(here) as told:
        document = json.loads(told.read())
    assert document["code"] == "internal"
    assert document["message"] == "ValueError: cannot reach redis://:***@host/0"


def test_a_redis_that_refuses_is_told_from_one_that_is_away() -> None:
    control = Control("redis://me:secret@127.0.0.1:1/0", "x")
    away = redis_away(ConnectionError("refused"), control)
    refused = redis_away(AuthenticationError("WRONGPASS"), control)
    assert (away.code, refused.code) == ("redis-away", "redis-refused")
    assert "secret" not in f"{away} {refused}"


def test_what_is_logged_has_no_password() -> None:
    entry = {"event": "left out", "error": "options redis://:secret@host/0", "batch": 3}
    assert _without_passwords(None, "error", entry) == {
        "event": "left out",
        "error": "options redis://:***@host/0",
        "batch": 3,
    }
