"""Child processes: each started in a separate session, and ended with all descendants.

A separate session has two advantages. Ctrl-C reaches only the client, which then ends its children
in the right order. And all descendants of a child (the JVM, Python workers in process groups of
their own) can be found by the session, even after their parent has ended.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count, islice
from pathlib import Path

import psutil

from anabranch_client.errors import ProcessError

_LAUNCHER = Path(__file__).with_name("launcher.py")
#: Maximum bytes of a child's error report.
_PIPE_BYTES = 65536
#: Ports below the ephemeral ones, which systems assign by themselves (on Linux from 32,768 on); and
#: the maximum number of draws for one free port.
_PORTS, _DRAWS = range(20_000, 32_768), 20
#: Numbers of this process's next draws, starting with a random one.
_NUMBERS = count(secrets.randbelow(len(_PORTS)))


@dataclass(slots=True)
class Child:
    """A process started by this client.

    ``pipe``: pipe for the child's error report, if it writes one.
    """

    name: str
    process: subprocess.Popen[bytes]
    log: Path
    pipe: int | None = None

    @property
    def pid(self) -> int:
        """The child's process id, which is also the id of its session."""
        return self.process.pid

    def check(self) -> None:
        """Raise an error if the process has ended.

        Raises:
            ProcessError: with the last line of its log.
        """
        code = self.process.poll()
        if code is not None:
            raise ProcessError(
                f"the {self.name} ended unexpectedly ({ending(code)}): {last_line(self.log)}",
                remedy=f"its log is {self.log}",
            )

    def wait(self, seconds: float) -> int | None:
        """Wait for the exit code; None if the process is still running after ``seconds``."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            return None

    def error(self) -> dict[str, str]:
        """Code, message and remedy of the error that ended the process; empty if unknown."""
        if self.pipe is None:
            return {}
        try:
            document = json.loads(os.read(self.pipe, _PIPE_BYTES))
        except (OSError, ValueError):
            return {}
        return document if isinstance(document, dict) else {}

    def kill(self) -> None:
        """Kill the process and its whole session at once."""
        if self.process.poll() is None:
            self.process.kill()
        kill_all(session(self.pid))
        self.process.wait()
        self._close()

    def stop(self, grace: float = 10.0) -> None:
        """End the process and its whole session: by SIGTERM, later by SIGKILL."""
        if self.process.poll() is None:
            self.process.terminate()
            if self.wait(grace) is None:
                self.process.kill()
                self.process.wait()
        signal_all(session(self.pid), signal.SIGTERM)
        _wait_for_end(lambda: session(self.pid), 2.0)
        kill_all(session(self.pid))
        self._close()

    def _close(self) -> None:
        if self.pipe is not None:
            os.close(self.pipe)
            self.pipe = None


def spawn(
    name: str,
    argv: Sequence[str],
    log: Path,
    extra: Mapping[str, str] | None = None,
    *,
    umask: int = 0o022,
    reports: bool = False,
) -> Child:
    """Start ``argv``, with output appended to ``log``, and ``extra`` added to the environment.

    The kernel kills the child when this process ends. Since that depends on the starting thread, it
    applies only to children started by the main thread.

    Args:
        name: name of the child in messages.
        argv: the command.
        log: file of the output; its folder is created.
        extra: further environment variables.
        umask: umask of the child.
        reports: whether the child accepts ``--error-fd``, a pipe for its error report.

    Raises:
        ProcessError: the child can't be started.
    """
    if shutil.which(argv[0]) is None:
        raise ProcessError(
            f"cannot start the {name}: {argv[0]} is missing", remedy="is the installation complete?"
        )
    lasting = threading.current_thread() is threading.main_thread()
    launcher = (sys.executable, "-I", "-S", str(_LAUNCHER), str(os.getpid()), f"{umask:o}")
    reading, writing = os.pipe() if reports else (None, None)
    try:
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as output:
            process = subprocess.Popen(
                [
                    *(launcher if lasting else ()),
                    *argv,
                    *(() if writing is None else ("--error-fd", str(writing))),
                ],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(extra or {})},
                start_new_session=True,
                umask=umask,
                pass_fds=() if writing is None else (writing,),
            )
    except OSError as cause:
        if reading is not None:
            os.close(reading)
        raise ProcessError(
            f"cannot start the {name}: {cause}", remedy="see the operating system's message"
        ) from cause
    finally:
        if writing is not None:
            os.close(writing)
    if reading is not None:
        os.set_blocking(reading, False)
    return Child(name, process, log, reading)


def wait_for(what: str, ready: Callable[[], bool], child: Child, seconds: float) -> None:
    """Wait until ``ready()`` is true; ``child`` is the process to wait for.

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


def free_port() -> int:
    """Return a free TCP port of the loopback interface that the system does not assign itself.

    So the port stays free although a program may take seconds to listen on it, or to be restarted
    after a crash. A process draws each port only once, because caches identify servers by address.
    """
    with socket.socket() as probe:
        for number in islice(_NUMBERS, _DRAWS):
            with suppress(OSError):
                probe.bind(("127.0.0.1", _PORTS[number % len(_PORTS)]))
                break
        else:
            probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def session(leader: int) -> list[psutil.Process]:
    """All living processes of the session led by ``leader``, including the leader.

    Zombies are left out: they can't be killed, and their parents may never wait for them.
    """
    found = []
    for process in psutil.process_iter():
        try:
            if os.getsid(process.pid) == leader and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return found


def last_line(log: Path) -> str:
    """The last nonempty line of a log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - 8192))
            lines = file.read().decode(errors="replace").splitlines()
    except OSError:
        return "it left no log"
    return next((line.strip() for line in reversed(lines) if line.strip()), "its log is empty")


def signal_all(processes: Sequence[psutil.Process], number: signal.Signals) -> None:
    """Signal the ``processes`` that are still running."""
    for process in processes:
        try:
            process.send_signal(number)
        except psutil.NoSuchProcess:
            continue


def kill_all(processes: Sequence[psutil.Process], seconds: float = 10.0) -> None:
    """Send SIGKILL to ``processes``, and wait until all have ended or are zombies."""
    signal_all(processes, signal.SIGKILL)
    _wait_for_end(lambda: [p for p in processes if _lives(p)], seconds)


def _lives(process: psutil.Process) -> bool:
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _wait_for_end(living: Callable[[], Sequence[psutil.Process]], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while living() and time.monotonic() < deadline:
        time.sleep(0.01)


def ending(code: int) -> str:
    """Description of a child process's exit code."""
    return f"exit code {code}" if code >= 0 else f"signal {-code}"
