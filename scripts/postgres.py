"""A PostgreSQL server on this machine, for tests and for trying PostgreSQL out: ``make postgres``.

It needs PostgreSQL's programs (Debian's package ``postgresql``) and, if started by root, a user
``postgres`` or ``nobody``, since the server refuses to run as root.
"""

from __future__ import annotations

import argparse
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psycopg2

from anabranch_client.processes.children import free_port

USER, DATABASE = "anabranch", "postgres"
#: Maximum seconds of a server's start.
PATIENCE = 180.0
#: Folders of distributions for the programs, besides the path; the newest version is the last.
_FOLDERS = "/usr/lib/postgresql/*/bin", "/usr/pgsql-*/bin"
#: Settings of a server for logical replication, without protection against power failures.
_SETTINGS = {
    "wal_level": "logical",
    "max_replication_slots": "40",
    "max_wal_senders": "40",
    "fsync": "off",
    "shared_buffers": "32MB",
    "unix_socket_directories": "",
    "listen_addresses": "127.0.0.1",
}


class NoPostgres(Exception):
    """No server can be run; the message says what to install."""


def programs() -> Path:
    """Return the directory of PostgreSQL's programs.

    Raises:
        NoPostgres: the programs are not installed.
    """
    found = [p for pattern in _FOLDERS for p in Path("/").glob(pattern[1:]) if _is_whole(p)]
    on_path = shutil.which("initdb")
    if on_path is not None and _is_whole(Path(on_path).parent):
        return Path(on_path).parent
    if not found:
        raise NoPostgres("PostgreSQL is missing: install the package postgresql")
    return max(found, key=lambda p: [int(n) for n in p.parts[-2].split("-")[-1].split(".")])


def _is_whole(folder: Path) -> bool:
    return (folder / "initdb").exists() and (folder / "postgres").exists()


class Server:
    """A PostgreSQL server that can be killed, and started again with its data.

    Args:
        home: directory for its data and its log.
        settings: settings of the server, besides those for logical replication.
    """

    def __init__(self, home: Path, port: int, settings: Mapping[str, str] | None = None) -> None:
        self.home, self.port = home, port
        self._process: subprocess.Popen[bytes] | None = None
        self._given = {**_SETTINGS, "port": str(port), **(settings or {})}
        self._as: dict[str, Any] = {}
        if os.getuid() == 0:
            names = {entry.pw_name: entry for entry in pwd.getpwall()}
            owner = names.get("postgres") or names["nobody"]
            self._as = {"user": owner.pw_uid, "group": owner.pw_gid, "extra_groups": []}
        home.mkdir(parents=True, exist_ok=True)
        if self._as:
            os.chown(home, self._as["user"], self._as["group"])
        if not (home / "data").exists():
            made = self._run("initdb", "-D", str(home / "data"), "-U", USER, "-A", "trust",
                             "--no-sync", "-E", "UTF8", "--locale=C")  # fmt: skip
            if made.wait():
                raise NoPostgres(f"initdb failed: {self.log()[-500:]}")

    @property
    def url(self) -> str:
        """URL of the server's database."""
        return f"postgresql://{USER}@127.0.0.1:{self.port}/{DATABASE}"

    def _run(self, program: str, *arguments: str) -> subprocess.Popen[bytes]:
        with (self.home / "log").open("ab") as log:
            return subprocess.Popen(
                [str(programs() / program), *arguments],
                cwd=self.home,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env={"PATH": os.environ.get("PATH", ""), "LC_ALL": "C", "TZ": "UTC"},
                **self._as,
            )

    def log(self) -> str:
        """Output of the server."""
        return (self.home / "log").read_text(errors="replace")

    def start(self) -> None:
        """Start the server, and wait until it accepts connections.

        Raises:
            NoPostgres: the server ended, or another program has its port.
        """
        with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1.0):
            raise NoPostgres(f"port {self.port} is in use: end its program, or give --port")
        options = [w for name, text in self._given.items() for w in ("-c", f"{name}={text}")]
        self._process = self._run("postgres", "-D", str(self.home / "data"), *options)
        deadline = time.monotonic() + PATIENCE
        while time.monotonic() < deadline and self._process.poll() is None:
            with suppress(psycopg2.OperationalError):
                psycopg2.connect(self.url).close()
                return
            time.sleep(0.05)
        self.kill()
        raise NoPostgres(f"the server did not start: {self.log()[-1000:]}")

    def kill(self) -> None:
        """Kill the server, as in a crash."""
        if self._process is not None:
            # SIGQUIT ends all processes of the server without a checkpoint.
            self._process.send_signal(signal.SIGQUIT)
            self._process.wait()
            self._process = None

    def stop(self) -> None:
        """Stop the server in an orderly way."""
        if self._process is not None:
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(20)
            self.kill()


@contextmanager
def running(
    home: Path | None = None, port: int = 0, settings: Mapping[str, str] | None = None
) -> Iterator[Server]:
    """Context with a running server; port 0: any free port.

    Args:
        home: directory for the data; None: a temporary one.

    Raises:
        NoPostgres: no server can be run.
    """
    with TemporaryDirectory(prefix="anabranch-postgres-") as folder:
        # Run by root, the server has another user, who must have access to its folder.
        Path(folder).chmod(0o711)
        server = Server(home or Path(folder) / "home", port or free_port(), settings)
        server.start()
        try:
            yield server
        finally:
            server.kill()


def main() -> None:
    """Run a server in the foreground until it is interrupted."""
    parser = argparse.ArgumentParser(description="A PostgreSQL server for logical replication.")
    parser.add_argument("--port", type=int, default=5432, help="port of clients (5432)")
    parser.add_argument("--home", type=Path, help="keep its data here (default: forget them)")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with suppress(KeyboardInterrupt):
        try:
            with running(given.home, given.port) as server:
                sys.stdout.write(f"PostgreSQL at {server.url}; Ctrl-C ends it\n")
                sys.stdout.flush()
                signal.pause()
        except NoPostgres as cause:
            sys.exit(str(cause))


if __name__ == "__main__":
    main()
