"""Tests of the service as a process, as users start it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

import anabranch_planner
import anabranch_service
from tests.support.worlds.service import eventually

STREAM = {"name": "events", "columns": {"id": "bigint"}}


def environment() -> dict[str, str]:
    """Return this process's environment, in which the packages can be imported from anywhere."""
    roots = [Path(m.__path__[0]).parent for m in (anabranch_planner, anabranch_service)]
    path = os.pathsep.join([*map(str, roots), os.environ.get("PYTHONPATH", "")])
    return {**os.environ, "PYTHONPATH": path}


@contextmanager
def process(redis: str, namespace: str, port_file: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "anabranch_service", "--port", "0", "--mode", "step"]
    started = subprocess.Popen(
        [*command, "--port-file", str(port_file), "--namespace", namespace],
        env={**environment(), "ANABRANCH_REDIS_URL": redis},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        eventually(lambda: port_file.exists() or started.poll() is not None, "it listens")
        yield started
    finally:
        started.kill()
        started.wait()
        assert started.stderr is not None
        started.stderr.close()


def test_a_process_says_where_it_listens_and_ends_when_told_to(redis: str, tmp_path: Path) -> None:
    port_file = tmp_path / "port"
    with process(redis, "process", port_file) as started:
        with httpx.Client(
            base_url=f"http://127.0.0.1:{int(port_file.read_text())}", timeout=60
        ) as http:
            assert http.get("/readyz").status_code == 200
            assert http.post("/v1/streams", json=STREAM).status_code == 201
        assert [p.name for p in tmp_path.iterdir()] == ["port"]
        started.send_signal(signal.SIGTERM)
        _, log = started.communicate(timeout=60)
    lines = [json.loads(line) for line in log.splitlines()]
    assert {"listening", "request"} <= {line["event"] for line in lines}
    assert all(line["timestamp"] and line["level"] for line in lines)


def test_a_killed_process_leaves_everything_to_the_next(redis: str, tmp_path: Path) -> None:
    for generation in range(2):
        port_file = tmp_path / f"port{generation}"
        with process(redis, "killed", port_file) as started:
            with httpx.Client(
                base_url=f"http://127.0.0.1:{int(port_file.read_text())}", timeout=60
            ) as http:
                status = http.post("/v1/streams", json=STREAM).status_code
                assert status == (201 if generation == 0 else 200)
            started.kill()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--port", "70000"], "port"),
        pytest.param(["--mode", "odd"], "--mode", marks=pytest.mark.slow),
        pytest.param(["--parallelism", "0"], "1", marks=pytest.mark.slow),
    ],
)
def test_bad_arguments_end_at_once(arguments: list[str], complaint: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "anabranch_service", *arguments],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ended.returncode == 2
    assert complaint in ended.stderr
    assert "Traceback" not in ended.stderr
