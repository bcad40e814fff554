"""The folder of ``anabranch up``: locked by one ``up`` at a time, cleared of leftover processes.

The process that has locked ``up.lock`` *holds* the folder; the kernel releases the lock when the
process ends in any way. ``up.json`` describes the holder; it is removed at an orderly end. Every
process that an ``up`` starts has the token in this document in its environment, and passes it on to
its own children.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import psutil

from anabranch_client.errors import ProcessError
from anabranch_client.processes.children import kill_all

#: Environment variable with the token of an ``up``.
TOKEN_VARIABLE = "ANABRANCH_UP"


@dataclass(frozen=True, slots=True)
class Holder:
    """The ``anabranch up`` that holds a folder.

    Attributes:
        pid, created: id of its process, and that process's creation time (seconds since 1970).
        since: the creation time as readable text.
        token: value of :data:`TOKEN` in the environment of its processes.
        url: URL of its service; empty before the service listens.
    """

    pid: int
    created: float
    since: str
    token: str
    url: str = ""

    def __str__(self) -> str:
        address = f", {self.url}" if self.url else ""
        return f"process {self.pid} (since {self.since}{address})"

    def process(self) -> psutil.Process | None:
        """The holder's process; None if it has ended, even if its id has been reused since."""
        try:
            found = psutil.Process(self.pid)
            return found if found.create_time() == self.created else None
        except psutil.NoSuchProcess:
            return None


class HeldError(ProcessError):
    """The folder is held by another ``up``."""


@dataclass(slots=True)
class Home:
    """A pipeline's folder that this process holds, i.e. has locked."""

    folder: Path
    holder: Holder

    def listens(self, url: str) -> None:
        """Record the service's URL."""
        self.holder = replace(self.holder, url=url)
        self.write()

    def write(self) -> None:
        """Write ``up.json``, ignoring errors: a full disk must not end a running holder."""
        path = self.folder / "up.json"
        draft = path.with_suffix(".tmp")
        with contextlib.suppress(OSError):
            draft.touch(0o600)
            draft.write_text(json.dumps(asdict(self.holder)))
            draft.replace(path)


@contextlib.contextmanager
def held(folder: Path) -> Iterator[Home]:
    """Hold (lock) ``folder``, creating it if needed, and end leftover processes of a killed holder.

    Raises:
        HeldError: another process holds the folder; nothing was changed.
        ProcessError: the folder can't be written.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = (folder / "up.lock").open("a")
    except OSError as cause:
        raise ProcessError(
            f"cannot write {cause.filename or folder}: {cause.strerror or cause}",
            field="--dir",
            remedy="name a folder that can be written",
        ) from cause
    with lock:
        _lock_folder(lock.fileno(), folder)
        reap(folder)
        me = psutil.Process()
        since = datetime.now(UTC).astimezone().isoformat(sep=" ", timespec="seconds")
        home = Home(folder, Holder(me.pid, me.create_time(), since, secrets.token_hex(16)))
        home.write()
        try:
            yield home
        finally:
            (folder / "up.json").unlink(missing_ok=True)


def refuse_held(folder: Path) -> None:
    """Raise an error if an ``up`` holds ``folder``.

    Raises:
        HeldError: naming the holder.
    """
    try:
        lock = (folder / "up.lock").open("r")
    except OSError:
        return
    with lock:
        _lock_folder(lock.fileno(), folder)


def holder_of(folder: Path) -> Holder | None:
    """The recorded holder of ``folder``, alive or not; None if there is no record."""
    try:
        return Holder(**json.loads((folder / "up.json").read_text()))
    except (OSError, ValueError, TypeError):
        return None


def reap(folder: Path) -> list[psutil.Process]:
    """End the processes that a killed ``up`` has left; only the holder of ``folder`` may do so."""
    left = left_behind(folder)
    kill_all(left)
    return left


def left_behind(folder: Path) -> list[psutil.Process]:
    """The running processes of the `up` recorded in ``folder``."""
    last = holder_of(folder)
    return [] if last is None else [p for p in psutil.process_iter() if _token(p) == last.token]


def _token(process: psutil.Process) -> str | None:
    if process.pid == os.getpid():
        return None
    try:
        return process.environ().get(TOKEN_VARIABLE)
    except (psutil.Error, OSError):
        # The process has ended, is a zombie, or belongs to another user.
        return None


def _lock_folder(file: int, folder: Path) -> None:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as cause:
        holder = holder_of(folder)
        raise HeldError(
            f"{folder} is in use by `anabranch up`, {holder or 'which is just starting'}",
            field="--dir",
            remedy=f"use that one, stop it (anabranch down --dir {folder}), or name another folder",
        ) from cause
