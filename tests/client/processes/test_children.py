"""Tests of child processes: started, found ready, measured, and ended with all descendants."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import psutil
import pytest
from redis import Redis

from anabranch_client.errors import ProcessError
from anabranch_client.processes.children import last_line, session, spawn, wait_for
from anabranch_client.processes.meter import ProcessMeter
from anabranch_client.processes.redis_server import start_redis
from tests.support.worlds.up import gone

#: Starts a child in a separate process group, as Spark's Python daemon does, and waits.
FAMILY = """
import subprocess, sys, time
code = "import os, time; os.setpgid(0, 0); print('child', flush=True); time.sleep(60)"
subprocess.Popen([sys.executable, "-c", code])
time.sleep(60)
"""


def test_a_redis_server_is_real_and_gone_after_stop(tmp_path: Path) -> None:
    child, url = start_redis(tmp_path / "redis", tmp_path / "redis.log", durable=False)
    try:
        with Redis.from_url(url) as connection:
            connection.set("a", 1)
            assert connection.get("a") == b"1"
        child.check()
    finally:
        child.stop()
    assert not psutil.pid_exists(child.pid)
    with pytest.raises(ProcessError, match="Redis server ended unexpectedly"):
        child.check()


def test_two_servers_do_not_meet(tmp_path: Path) -> None:
    first, one = start_redis(tmp_path / "1", tmp_path / "1.log", durable=False)
    second, two = start_redis(tmp_path / "2", tmp_path / "2.log", durable=False)
    first.stop()
    second.stop()
    assert one != two


def test_a_durable_server_keeps_what_was_written(tmp_path: Path) -> None:
    child, url = start_redis(tmp_path / "redis", tmp_path / "redis.log", durable=True)
    with Redis.from_url(url) as connection:
        connection.set("a", "kept")
    child.stop()
    child, url = start_redis(tmp_path / "redis", tmp_path / "redis.log", durable=True)
    with Redis.from_url(url) as connection:
        assert connection.get("a") == b"kept"
    child.stop()


def test_stop_ends_descendants_in_groups_of_their_own(tmp_path: Path) -> None:
    log = tmp_path / "family.log"
    child = spawn("family", [sys.executable, "-c", FAMILY], log)
    wait_for("the child", lambda: "child" in log.read_text(), child, 120)
    family = session(child.pid)
    assert len(family) == 2
    assert len({os.getpgid(p.pid) for p in family}) == 2
    child.stop(grace=1)
    assert session(child.pid) == []
    assert gone(family, 1) == []


def test_stop_is_not_put_off_by_a_process_that_ignores_the_signal(tmp_path: Path) -> None:
    log = tmp_path / "stubborn.log"
    code = (
        "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); "
        "print('up', flush=True); time.sleep(60)"
    )
    child = spawn("stubborn", [sys.executable, "-c", code], log)
    wait_for("it", lambda: "up" in log.read_text(), child, 120)
    child.stop(grace=0.2)
    assert child.process.returncode == -9


def test_a_process_that_dies_is_reported_with_its_last_words(tmp_path: Path) -> None:
    log = tmp_path / "short.log"
    code = "import sys; print('first'); sys.exit('no disk left')"
    child = spawn("short", [sys.executable, "-c", code], log)
    with pytest.raises(ProcessError, match=r"exit code 1\): no disk left") as caught:
        wait_for("it", lambda: False, child, 120)
    assert str(log) in caught.value.remedy
    child.stop()


def test_waiting_has_an_end(tmp_path: Path) -> None:
    child = spawn("idle", [sys.executable, "-c", "import time; time.sleep(60)"], tmp_path / "log")
    with pytest.raises(ProcessError, match="more than 0 s"):
        wait_for("being ready", lambda: False, child, 0.1)
    child.stop()


def test_a_program_that_is_missing_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(ProcessError, match="cannot start the ghost"):
        spawn("ghost", [str(tmp_path / "ghost")], tmp_path / "log")


def test_the_last_line_of_a_log(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert last_line(log) == "it left no log"
    log.write_text("")
    assert last_line(log) == "its log is empty"
    log.write_text("one\n  two  \n\n")
    assert last_line(log) == "two"


def test_the_meter_sees_descendants_and_those_that_have_ended(tmp_path: Path) -> None:
    log = tmp_path / "busy.log"
    code = (
        "import subprocess, sys, time\n"
        "burn = 'import time\\nwhile time.process_time() < 0.5: pass'\n"
        "time.sleep(0.5)\n"
        "subprocess.run([sys.executable, '-c', burn])\n"
        "print('done', flush=True)\n"
        "time.sleep(60)"
    )
    child = spawn("busy", [sys.executable, "-c", code], log)
    meter = ProcessMeter(lambda: [child.pid], interval=0.05)
    meter.start()
    wait_for("it", lambda: "done" in log.read_text(), child, 120)
    meter.stop()
    assert meter.cpu_seconds >= 0.5
    assert meter.peak_rss_bytes > 5_000_000
    before = meter.cpu_seconds
    time.sleep(0.1)
    meter.stop()
    assert meter.cpu_seconds == before
    child.stop()
