"""Tests of ``anabranch up`` with real processes, started by the command line."""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from typer.testing import CliRunner

from anabranch_client.cli import up as cli_up
from anabranch_client.cli.app import app
from anabranch_client.errors import ApiError
from anabranch_client.processes.children import free_port
from anabranch_client.processes.pipeline import PipelineSpec, spawn_runtime
from anabranch_client.rest.api import Client
from anabranch_client.supervise.home import holder_of
from tests.support.worlds.processes import spec_of, wait_until
from tests.support.worlds.up import Target, Up, gone, upped


@pytest.mark.slow
def test_up_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    with upped(tmp_path) as up:
        with up.client() as client:
            assert client.streams() == []
            assert client.settings().mode == "live"
        family = up.family()
        assert len(up.find(Target.REDIS)) == len(up.find(Target.SERVICE)) == 1
        assert up.stop() == 0
        assert gone(family, 1) == []
        assert up.text().endswith("stopped\n")
    assert sorted(p.name for p in (up.home / "logs").iterdir()) == [
        "redis.log",
        "runtime.log",
        "service.log",
    ]
    assert not (up.home / "up.json").exists()


@pytest.mark.slow
def test_who_holds_a_folder_holds_it_alone_and_takes_all_along(tmp_path: Path) -> None:
    with upped(tmp_path) as up:
        assert up.process is not None
        # Only the owner may read Redis's files, and no command line has the password.
        password = (up.home / "redis" / "password").read_text().strip()
        for path in (up.home / "redis").rglob("*"):
            assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path
        family = up.family()
        assert not [p for p in family if any(password in part for part in p.cmdline())]
        assert password not in up.text()

        # A second ``up`` changes nothing, and names the running one.
        with up.redis() as server:
            for number in range(1000):
                server.set(f"written:{number}", number)
        before = _files(up.home)
        second = _run(up, "up", "--port", "0")
        assert second.returncode == 1
        holder = holder_of(up.home)
        assert holder is not None
        assert f"is in use by `anabranch up`, process {up.process.pid} (since" in second.stderr
        assert holder.url in second.stderr
        assert _run(up, "up", "--port", "0", "--wait").stderr == second.stderr
        assert _files(up.home) == before
        with up.redis() as server:
            for number in range(1000, 2000):
                server.set(f"written:{number}", number)

        # Killed processes restart at the same addresses, with all acknowledged writes.
        up.kill(Target.REDIS)
        up.kill(Target.SERVICE)
        up.wait("Redis works again")
        up.wait("the service works again")
        with up.redis() as server:
            assert len(list(server.scan_iter("written:*", count=1000))) == 2000
        with up.client() as client:
            assert client.streams() == []

        # If ``up`` itself is killed, no process remains.
        family = up.family()
        up.process.kill()
        up.process.wait()
        assert gone(family) == []
        done = _run(up, "down")
        assert (done.returncode, done.stdout) == (0, f"nothing runs in {up.home}\n")


@pytest.mark.slow
def test_up_beyond_loopback_says_where_the_token_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A token in the environment, meant for another service, has no effect.
    monkeypatch.setenv("ANABRANCH_TOKEN", f"anb_{12 * '0'}_{64 * '0'}")
    where = ("--host", "0.0.0.0", "--port", str(free_port()), "--master", "local[2]")
    with upped(tmp_path, arguments=where) as up:
        file = up.home / "admin.token"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        token = file.read_text().strip()
        wait_until("it says where the token is", lambda: str(file) in up.text())
        assert token not in up.text()
        assert not [p for p in up.family() if any(token in part for part in p.cmdline())]
        url = f"http://127.0.0.1:{(up.home / 'service.port').read_text().strip()}"
        with Client(url, token=token) as client:
            assert client.whoami().required
            client.ready()
        with Client(url, token="") as client, pytest.raises(ApiError, match="no token"):
            client.streams()
        # The service comes back with the same token.
        up.kill(Target.SERVICE)
        up.wait("the service works again")
        with Client(url, token=token) as client:
            assert client.streams() == []


@pytest.mark.e2e
def test_up_in_the_background_until_down(tmp_path: Path) -> None:
    up = Up(tmp_path / "home", tmp_path / "out")
    started = _run(up, "up", *up.arguments, "--wait")
    try:
        assert started.returncode == 0, started.stderr
        assert started.stdout.endswith("\nready\n")
        with up.client() as client:
            assert client.streams() == []
        holder, family = holder_of(up.home), up.family()
        assert holder is not None
        assert len(family) >= 3
    finally:
        stopped = _run(up, "down")
    assert (stopped.returncode, stopped.stdout) == (0, "stopped\n")
    assert gone([*family, *_process(holder.pid)], 1) == []
    assert _run(up, "down").stdout == f"nothing runs in {up.home}\n"


@pytest.mark.slow
def test_up_that_cannot_become_ready_says_why(tmp_path: Path) -> None:
    up = Up(tmp_path / "home", tmp_path / "out")
    state = up.home / "state"
    (state / "manifest").mkdir(parents=True)
    manifest = state / "manifest" / "000000000000.json"
    manifest.write_text(json.dumps({"version": 1000, "crc": 0, "state": {}}))
    started = _run(up, "up", *up.arguments, "--wait")
    assert started.returncode == 1
    assert "error: the runtime ended: " in started.stderr
    assert "[unknown-version]" in started.stderr
    # The check is repeated at the next start, when the state is intact.
    manifest.unlink()
    with upped(tmp_path):
        pass


@pytest.mark.slow
def test_up_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    up = Up(tmp_path / "home", tmp_path / "out")
    started = _run(up, "up", *up.arguments, "--wait", "--timeout", "1")
    assert started.returncode == 1
    assert "was not ready within 1 s and has been stopped" in started.stderr
    assert _run(up, "down").stdout == f"nothing runs in {up.home}\n"


@pytest.mark.slow
def test_what_a_killed_up_left_is_cleared_at_the_next_start(tmp_path: Path) -> None:
    with upped(tmp_path) as up:
        assert up.process is not None
        # A stopped process, which does not end with its parent and does not react to SIGTERM.
        up.kill(Target.JVM, signal.SIGSTOP)
        (jvm,) = up.find(Target.JVM)
        up.process.kill()
        up.process.wait()
        wait_until("the service to end", lambda: not up.find(Target.SERVICE), 20)
        assert gone([jvm], 1) == [jvm]
        up.ready()
        assert gone([jvm], 1) == []


def _run(up: Up, command: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "anabranch_client", command, "--dir", str(up.home), *arguments]
    return subprocess.run(argv, capture_output=True, text=True, timeout=400, check=False)


def _files(home: Path) -> dict[str, int]:
    """Path -> modification time, without state and logs, which may grow while processes run."""
    found = {}
    for folder, _, names in os.walk(home):
        for name in names:
            path = f"{folder}/{name}"
            if "appendonlydir" not in path and "/state/" not in path and "/logs/" not in path:
                found[path] = os.stat(path).st_mtime_ns
    return found


def _process(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid)] if psutil.pid_exists(pid) else []


@pytest.mark.parametrize(
    ("arguments", "variable", "said"),
    [
        (
            ("--spark-conf", "memory"),
            "",
            "--spark-conf: 'memory' is not a setting of Spark: give KEY",
        ),
        (("--spark-conf", "spark.master=yarn"), "", "use --master (ANABRANCH_MASTER)"),
        ((), "spark.a=1\nb", "ANABRANCH_SPARK_CONF: 'b' is not a setting of Spark"),
    ],
)
def test_a_setting_of_spark_that_cannot_be_used_starts_nothing(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    variable: str,
    said: str,
) -> None:
    monkeypatch.setenv("ANABRANCH_SPARK_CONF", variable)
    up = Up(tmp_path / "home", tmp_path / "out")
    done = _run(up, "up", *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert not up.home.exists()


def test_what_a_cluster_needs_is_handed_to_the_runtime_unseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[PipelineSpec] = []
    monkeypatch.setattr(cli_up, "_supervise", lambda spec, pipe: found.append(spec))
    monkeypatch.setenv("ANABRANCH_SPARK_CONF", "spark.a=b c\nspark.d=e")
    options = {
        "--object-store": "s3://key:secret@bucket/prefix",
        "--cache-directory": "/cache",
        "--meeting-port": "7080",
    }
    arguments = [word for pair in options.items() for word in pair]
    done = CliRunner().invoke(app, ["up", "--dir", str(tmp_path), "--master", "yarn", *arguments])
    assert done.exit_code == 0, done.output
    (spec,) = found
    assert spec.master == "yarn"
    assert (spec.object_store, spec.cache_directory) == ("s3://key:secret@bucket/prefix", "/cache")
    assert spec.variables == {
        "ANABRANCH_MEETING_PORT": "7080",
        "ANABRANCH_SPARK_CONF": "spark.a=b c\nspark.d=e",
    }
    # The Redis that `up` starts listens on this machine only.
    assert "ANABRANCH_REDIS_URL" in done.output


def test_spawned_with_what_its_variables_say(tmp_path: Path) -> None:
    spec = spec_of(tmp_path, variables={"ANABRANCH_MEETING_PORT": "x"})
    child = spawn_runtime(spec, "redis://127.0.0.1:1/0", "run")
    try:
        assert child.wait(60) == 2
        assert "'x' is not a port" in child.log.read_text()
        assert "ANABRANCH_MEETING_PORT" not in " ".join(map(str, child.process.args))  # type: ignore[arg-type]
    finally:
        child.stop()
