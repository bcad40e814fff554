"""``anabranch up`` as a user starts it, with a join to run, and kills of its processes."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
import redis

from anabranch_client.errors import ClientError
from anabranch_client.processes.channel import Channel
from anabranch_client.rest.api import Client
from anabranch_client.supervise.home import TOKEN_VARIABLE, holder_of
from anabranch_contract.protocol.keys import Keys
from anabranch_contract.protocol.progress import Heartbeat, Progress
from tests.support.worlds.processes import PATIENCE, meanwhile, wait_until

NAMESPACE = "anabranch"
COLUMNS = (("id", "bigint"), ("k", "bigint"), ("ts", "timestamp"))
JOIN = "SELECT a.id AS x, b.id AS y FROM a JOIN b ON a.k = b.k"


class Target(StrEnum):
    """Target of a kill: one process, the runtime with all its processes, or all but ``up``.

    Driver, JVM and worker are parts of the runtime, not of its standby.
    """

    DRIVER = "driver"
    JVM = "jvm"
    WORKER = "worker"
    RUNTIME = "runtime"
    STANDBY = "standby"
    SERVICE = "service"
    REDIS = "redis"
    ALL = "all"


@dataclass
class Up:
    """A process of ``anabranch up``; its output is written to ``out``."""

    home: Path
    out: Path
    environment: dict[str, str] = field(default_factory=dict)
    arguments: tuple[str, ...] = ("--port", "0", "--master", "local[2]")
    process: subprocess.Popen[bytes] | None = None

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of ``anabranch up``."""
        base = (sys.executable, "-m", "anabranch_client", "up", "--dir", str(self.home))
        return [*base, *self.arguments, *arguments]

    def start(self) -> None:
        """Start ``anabranch up``; its output replaces that of an earlier run."""
        with self.out.open("wb") as out:
            self.process = subprocess.Popen(
                self.command(),
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
            )

    def wait(self, word: str, seconds: float = PATIENCE) -> None:
        """Wait until a line of the output equals or contains ``word``."""

        def said() -> bool:
            assert self.process is not None
            text = self.text()
            assert self.process.poll() is None or word in text, text
            return word in text

        wait_until(f"up to say {word!r}", said, seconds)

    def ready(self) -> None:
        """Start ``anabranch up`` and wait until it is ready."""
        self.start()
        self.wait("\nready\n")

    def text(self) -> str:
        """Return the output so far."""
        return self.out.read_text()

    def ended(self, seconds: float = PATIENCE) -> int:
        """Wait until the process has ended by itself; return its exit code."""
        assert self.process is not None
        return self.process.wait(seconds)

    def stop(self) -> int:
        """Stop the process with SIGTERM; return its exit code."""
        assert self.process is not None
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(120)

    def close(self) -> None:
        """End the process, whatever its state."""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(90)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()

    # --- what it runs --------------------------------------------------------------------------

    @property
    def redis_url(self) -> str:
        """Address of the embedded Redis, with the password."""
        given = self.environment.get("ANABRANCH_REDIS_URL")
        if given is not None:
            return given
        folder = self.home / "redis"
        lines = (folder / "redis.conf").read_text().splitlines()
        port = next(line.split()[1] for line in lines if line.startswith("port "))
        return f"redis://:{(folder / 'password').read_text().strip()}@127.0.0.1:{port}/0"

    @contextmanager
    def client(self) -> Iterator[Client]:
        """Return a client of the service."""
        holder = holder_of(self.home)
        assert holder is not None
        with Client(holder.url) as client:
            yield client

    @contextmanager
    def redis(self) -> Iterator[redis.Redis]:
        """Return a connection to Redis."""
        with redis.Redis.from_url(self.redis_url, decode_responses=True) as server:
            yield server

    def progress(self) -> Progress | None:
        """Return the runtime's progress; None if Redis does not answer."""
        channel = Channel(self.redis_url, NAMESPACE)
        try:
            return channel.progress()
        except ClientError:
            return None
        finally:
            channel.close()

    def committed(self) -> int:
        """Return the number of batches committed so far, as far as known."""
        progress = self.progress()
        return 0 if progress is None else progress.committed

    def wait_for_commits(self, count: int = 1, seconds: float = PATIENCE) -> None:
        """Wait until ``count`` more batches have been committed."""
        base = self.committed()
        wait_until(f"{count} commits", lambda: self.committed() >= base + count, seconds)

    def family(self) -> list[psutil.Process]:
        """Return all child processes of ``up``, and their children."""
        holder = holder_of(self.home)
        assert holder is not None
        return [p for p in psutil.process_iter() if _variable(p) == holder.token]

    def find(self, target: Target) -> list[psutil.Process]:
        """Return the processes that ``target`` names, without ``up`` itself."""
        family = [p for p in self.family() if p.pid != (self.process and self.process.pid)]
        if target in _OF_RUNTIME:
            leader = self._leader(standby=target is Target.STANDBY)
            family = [p for p in family if _session(p) == leader]
            if target in (Target.RUNTIME, Target.STANDBY):
                return family
        return [p for p in family if target is Target.ALL or _is(p, target)]

    def _leader(self, *, standby: bool) -> int | None:
        """Return the process id of the runtime, or of its standby, from its heartbeat."""
        keys = Keys(NAMESPACE)
        with contextlib.suppress(redis.RedisError), self.redis() as server:
            text = server.get(keys.standby if standby else keys.heartbeat)
            return None if text is None else Heartbeat.loads(str(text)).pid
        return None

    def has_standby(self) -> bool:
        """Whether a standby runtime is ready to take over."""
        with contextlib.suppress(redis.RedisError), self.redis() as server:
            text = server.get(Keys(NAMESPACE).standby)
            found = None if text is None else Heartbeat.loads(str(text))
            # A heartbeat remains for some seconds after its process's end.
            return found is not None and found.state == "working" and psutil.pid_exists(found.pid)
        return False

    def kill(self, target: Target, number: signal.Signals = signal.SIGKILL) -> int:
        """Send a signal to the target's processes at once; return their number."""
        wait_until(f"a {target} to be there", lambda: bool(self.find(target)), 60)
        found = self.find(target)
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.send_signal(number)
        return len(found)

    # --- load ----------------------------------------------------------------------------------

    def register(self) -> None:
        """Register two Redis Streams and their join."""
        with self.client() as client:
            for stream in "ab":
                client.create_stream(
                    stream,
                    COLUMNS,
                    event_time="ts",
                    lateness="1 minute",
                    source={"format": "redis-stream"},
                )
            client.create_query(JOIN, name="q", window="10 seconds")

    @contextmanager
    def fed(self, every: float = 0.05) -> Iterator[None]:
        """Context with a light load: rows each ``every`` seconds, lost while Redis is down."""

        def feed(over: threading.Event) -> None:
            with self.redis() as server:
                number = 0
                while not over.wait(every):
                    with contextlib.suppress(redis.RedisError):
                        for stream in "ab":
                            server.xadd(f"{NAMESPACE}:stream:{stream}", {"data": row(number)})
                    number += 1

        with meanwhile(feed):
            yield


def row(number: int) -> str:
    """Return a message of either stream."""
    moment = datetime.now(UTC).isoformat()
    return json.dumps({"id": number, "k": number % 100, "ts": moment})


@contextmanager
def upped(folder: Path, **changes: Any) -> Iterator[Up]:
    """Context with a ready ``anabranch up`` below ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    up = Up(folder / "home", folder / "out", **changes)
    try:
        up.ready()
        yield up
    finally:
        up.close()


#: Targets that are parts of a runtime or of its standby.
_OF_RUNTIME = (Target.DRIVER, Target.JVM, Target.WORKER, Target.RUNTIME, Target.STANDBY)


def _session(process: psutil.Process) -> int | None:
    try:
        return os.getsid(process.pid)
    except OSError:
        return None


def _variable(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(TOKEN_VARIABLE)
    except (psutil.Error, OSError):
        return None


def _is(process: psutil.Process, target: Target) -> bool:
    try:
        command, name = process.cmdline(), process.name()
        if target is Target.JVM:
            return name == "java"
        if target is Target.SERVICE:
            return "anabranch_service" in command
        if target is Target.DRIVER:
            return "anabranch_runtime" in command
        if target is Target.REDIS:
            return "valkey-server" in name or any("valkey-server" in part for part in command[:1])
        # A process forked by Spark's daemon.
        parent = process.parent()
        daemon = "anabranch_runtime.spark.daemon"
        return daemon in command and parent is not None and daemon in parent.cmdline()
    except psutil.Error:
        return False


def gone(processes: list[psutil.Process], seconds: float = 60.0) -> list[psutil.Process]:
    """Return the processes that still run after some time, without zombies."""
    deadline = time.monotonic() + seconds

    def living() -> list[psutil.Process]:
        found = []
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                if process.is_running() and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    while living() and time.monotonic() < deadline:
        time.sleep(0.1)
    return living()
