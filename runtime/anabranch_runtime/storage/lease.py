"""Who runs the pipeline of an object store: a lease, renewed for as long as its owner lives.

The lease is an object that names its owner and when it was last renewed. It is taken where there is
none, where its owner has not renewed it for ``STALE`` seconds, or where its owner was a process
over the same state directory of the same host: that one has gone, since this one holds the
directory's lock. Before anything is committed the lease is read again.

``pyarrow.fs`` has no compare-and-swap, so this detects mistakes and is no mutual
exclusion: two that take a stale lease in the same moment may both commit until one of them reads
the other's, and a process that stood still between the last look and its commit still commits
(``docs/state.md``).
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING

import structlog

from anabranch_runtime.errors import StateError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from anabranch_runtime.storage.object_store import Remote

NAME = "lease.json"
#: Seconds between two renewals, and after which a lease that was not renewed may be taken. Clocks
#: of hosts may differ by what lies between.
RENEWAL, STALE = 10.0, 60.0

_LOG = structlog.get_logger("anabranch.runtime")


@dataclass(frozen=True, slots=True)
class Owner:
    """Who holds a lease; ``time`` is that of the renewal, in seconds since 1970."""

    owner: str
    host: str
    root: str
    process: int
    time: float


@dataclass(slots=True)
class Lease:
    """This process's hold of a store."""

    remote: Remote
    root: Path
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _ended: threading.Event = field(default_factory=threading.Event)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the store; the caller holds the state directory's lock.

        Raises:
            StateError: ``store-in-use``: another process holds it.
        """
        holder = self._holder()
        if holder is not None and not self._free(holder):
            age = max(time.time() - holder.time, 0.0)
            raise StateError(
                "store-in-use",
                f"{self.remote.where} is in use by process {holder.process} on {holder.host}, "
                f"which renewed its lease {age:.0f} s ago",
                remedy="stop that pipeline first, or give this one an object store of its own; "
                f"if it has been killed, try again in {STALE:.0f} seconds",
            )
        self._renew()
        self.check()
        thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            holder = self._holder_or_none()
            if holder is not None and holder.owner == self.id:
                self.remote.delete(NAME)

    def check(self) -> None:
        """See to it that nobody else has taken the store.

        Raises:
            StateError: ``store-taken``.
        """
        holder = self._holder()
        if holder is not None and holder.owner != self.id:
            raise StateError(
                "store-taken",
                f"process {holder.process} on {holder.host} has taken over {self.remote.where}",
                remedy="leave it to that process: what this one had not committed is done there",
            )

    def _free(self, holder: Owner) -> bool:
        mine = (os.uname().nodename, str(self.root))
        return time.time() - holder.time > STALE or (holder.host, holder.root) == mine

    def _keep(self) -> None:
        while not self._ended.wait(RENEWAL):
            try:
                self.check()
                self._renew()
            except StateError as error:
                # Whoever commits finds out by itself.
                _LOG.warning("lease not renewed", error=str(error))

    def _renew(self) -> None:
        host, process = os.uname().nodename, os.getpid()
        owner = Owner(self.id, host, str(self.root), process, time.time())
        self.remote.put(NAME, json.dumps(asdict(owner)).encode())

    def _holder(self) -> Owner | None:
        """Who holds it; nobody where it is not known."""
        content = self.remote.get(NAME)
        try:
            return None if content is None else Owner(**json.loads(content))
        except (ValueError, TypeError):
            return None

    def _holder_or_none(self) -> Owner | None:
        try:
            return self._holder()
        except StateError:
            return None
