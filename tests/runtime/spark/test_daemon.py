"""Tests of the daemons that fork Spark's Python processes, with the JVM's protocol."""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

import psutil
import pytest

from anabranch_runtime.spark.interpreter import worker_interpreter
from tests.support.worlds.processes import wait_until

SECRET = b"a secret"


def framed(text: bytes) -> bytes:
    """Return a text with its length before it."""
    return struct.pack("!i", len(text)) + text


def number(stream: IO[bytes]) -> int:
    """Return the next integer of a stream."""
    (found,) = struct.unpack("!i", stream.read(4))
    assert isinstance(found, int)
    return found


#: Command lines of daemons: for tasks, and for processes that plan sources.
DAEMONS = {
    "tasks": (sys.executable, "-m", "anabranch_runtime.spark.daemon", "pyspark.worker"),
    "sources": (
        *(worker_interpreter(), "-m", "anabranch_runtime.spark.daemon"),
        "pyspark.sql.worker.create_data_source",
    ),
}


@pytest.fixture(scope="module", params=DAEMONS)
def daemon(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, Path]]:
    """Port and log of a daemon that runs with Spark's environment variables."""
    log = tmp_path_factory.mktemp("daemon") / "log"
    variables = {
        "PYTHON_WORKER_FACTORY_SECRET": SECRET.decode(),
        "SPARK_REUSE_WORKER": "1",
        "PYTHON_DAEMON_KILL_WORKER_ON_FLUSH_FAILURE": "1",
    }
    with (
        log.open("wb") as written,
        subprocess.Popen(
            DAEMONS[request.param],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=written,
            env={**os.environ, **variables},
        ) as process,
    ):
        assert process.stdout is not None
        yield number(process.stdout), log
        assert process.stdin is not None
        process.stdin.close()


def fork(port: int, secret: bytes) -> None:
    """Have a worker forked, send it a secret, close its connection, and wait for its end."""
    with socket.create_connection(("127.0.0.1", port)) as connection:
        reading = connection.makefile("rb")
        worker = number(reading)
        connection.sendall(framed(secret))
        if secret == SECRET:
            assert reading.read(6) == framed(b"ok")
        # With unread bytes, closing resets the connection, as when the JVM drops a worker.
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        reading.close()
    wait_until("the worker to end", lambda: not psutil.pid_exists(worker), 60)


def test_a_worker_that_the_jvm_lets_go_leaves_no_traceback(daemon: tuple[int, Path]) -> None:
    port, log = daemon
    before = log.read_text()
    for _ in range(3):
        fork(port, SECRET)
    assert "Traceback" not in log.read_text().removeprefix(before)


def test_other_errors_of_a_worker_leave_theirs(daemon: tuple[int, Path]) -> None:
    port, log = daemon
    fork(port, b"\xff no text")
    assert "UnicodeDecodeError" in log.read_text()
