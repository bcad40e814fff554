"""Tests of the embedded Redis: a password, private files, no dangerous commands, unchanged old
folders.
"""

from __future__ import annotations

import stat
from pathlib import Path

import psutil
import pytest
from redis import AuthenticationError, Redis, ResponseError
from redis.backoff import NoBackoff
from redis.exceptions import NoPermissionError
from redis.retry import Retry

from anabranch_client.processes.children import free_port, spawn, wait_for
from anabranch_client.processes.redis_server import _binary, prepare, start_redis


def test_without_the_password_nobody_gets_in(tmp_path: Path) -> None:
    child, url = start_redis(tmp_path / "redis", tmp_path / "log", durable=True)
    try:
        password = (tmp_path / "redis" / "password").read_text().strip()
        assert len(password) >= 32
        assert f":{password}@" in url
        port = int(url.rpartition(":")[2].partition("/")[0])
        once = Retry(NoBackoff(), 0)
        with Redis(port=port, retry=once) as stranger, pytest.raises(AuthenticationError):
            stranger.get("a")
        with Redis.from_url(url) as user:
            assert user.set("a", "b")
            assert user.eval("return redis.call('GET', KEYS[1])", 1, "a") == b"b"
        assert not any(password in part for part in psutil.Process(child.pid).cmdline())
        for path in (tmp_path / "redis", *(tmp_path / "redis").rglob("*")):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
    finally:
        child.stop()


@pytest.mark.parametrize(
    "command",
    ["FLUSHALL", "FLUSHDB", "SHUTDOWN", "DEBUG SLEEP 0", "CONFIG GET *", "MODULE LIST", "ACL LIST"],
)
def test_nobody_can_lose_or_leak_the_data(tmp_path: Path, command: str) -> None:
    child, url = start_redis(tmp_path / "redis", tmp_path / "log", durable=True)
    try:
        with Redis.from_url(url) as user, pytest.raises((NoPermissionError, ResponseError)) as info:
            user.execute_command(*command.split())
        assert "permission" in str(info.value) or "not allowed" in str(info.value)
        assert child.process.poll() is None
    finally:
        child.stop()


def test_a_folder_of_the_release_before_keeps_its_data(tmp_path: Path) -> None:
    folder = tmp_path / "redis"
    folder.mkdir()
    port = free_port()
    options = {"port": str(port), "bind": "127.0.0.1", "dir": str(folder), "appendonly": "yes"}
    argv = [_binary(), *(text for key, value in options.items() for text in (f"--{key}", value))]
    child = spawn("Redis server", argv, tmp_path / "log")
    with Redis(port=port) as user:
        wait_for("it", lambda: _answers(user), child, 60)
        user.set("streams", "kept")
    child.stop()
    assert not (folder / "password").exists()

    child, url = start_redis(folder, tmp_path / "log", durable=True)
    try:
        with Redis.from_url(url) as user:
            assert user.get("streams") == b"kept"
        assert {stat.S_IMODE(p.stat().st_mode) for p in folder.rglob("*")} == {0o600, 0o700}
    finally:
        child.stop()


def test_the_password_stays(tmp_path: Path) -> None:
    first = prepare(tmp_path / "a folder", tmp_path / "log", durable=True)
    second = prepare(tmp_path / "a folder", tmp_path / "log", durable=True)
    assert first.password == second.password
    assert first.password != prepare(tmp_path / "b", tmp_path / "log", durable=True).password


def test_a_folder_with_a_space_and_a_quote(tmp_path: Path) -> None:
    child, url = start_redis(tmp_path / 'my "data"', tmp_path / "log", durable=True)
    with Redis.from_url(url) as user:
        assert user.set("a", "b")
    child.stop()
    assert (tmp_path / 'my "data"' / "appendonlydir").is_dir()


def _answers(user: Redis) -> bool:
    try:
        return bool(user.ping())
    except Exception:  # noqa: BLE001 - not yet
        return False
