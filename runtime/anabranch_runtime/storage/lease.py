"""Lease on the pipeline in an object store, renewed as long as its owner lives.

The lease is an object with its owner and the time of its last renewal. A process may take the lease
if there is none, if its owner has given it up or has not renewed it for ``STALE`` seconds, or if
its owner was a process with the same state directory on the same host (which must have ended, since
this process holds the directory's lock). A standby watches the lease, and takes it once the owner
has missed :data:`MISSED` renewals by the standby's own clock. A lease is written only by
compare-and-swap (``object_store``): if several processes try to take it, one succeeds, and an owner
that has lost it notices at its next renewal.

The lease decides which process continues. It need not protect the data: documents, too, are written
by compare-and-swap, so a process that was suspended or has a wrong clock overwrites nothing.
"""

from __future__ import annotations

import json
import os
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path

import structlog

from anabranch_runtime.errors import StateError
from anabranch_runtime.storage.object_store import ChangedError, Remote, Version

NAME = "lease.json"
#: Seconds between two renewals; seconds without renewal after which a lease may be taken. The
#: clocks of hosts may differ by the difference between these values.
RENEWAL, STALE = 10.0, 60.0
#: Seconds between two renewals by an owner with standbys; number of missed renewals after which a
#: standby takes the lease.
OFTEN, MISSED = 1.0, 3
#: Renewal time of a lease that its owner has given up.
GIVEN_UP = 0.0

_LOG = structlog.get_logger("anabranch.runtime")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a lease.

    Attributes:
        time: time of the last renewal, in seconds since 1970. ``every``: seconds between renewals.
    """

    owner: str
    host: str
    root: str
    process: int
    time: float
    every: float


@dataclass(slots=True)
class StoreLease:
    """This process's lease on the object store.

    Attributes:
        standby: whether this process waits for the owner's end, or others for its end.
    """

    remote: Remote
    root: Path
    standby: bool = False
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _ended: threading.Event = field(default_factory=threading.Event)
    #: Version of the lease's object that this process last read or wrote.
    _known: Version | None = None
    #: When this process first read that version (``time.monotonic``).
    _since: float = 0.0

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the lease; the caller must hold the state directory's lock.

        Raises:
            StateError: ``store-in-use``: another process holds the lease.
        """
        holder, version = self._read()
        if version != self._known:
            self._known, self._since = version, time.monotonic()
        if holder is not None and not self._free(holder):
            raise self._in_use(holder)
        try:
            self._renew()
        except ChangedError:
            # Another process has just taken the lease.
            holder, _ = self._read()
            raise self._in_use(holder) from None
        thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            self.give_up()

    def give_up(self) -> None:
        """Give up the lease, so that another process may take it at once."""
        self._ended.set()
        with suppress(StateError, ChangedError):
            self._renew(GIVEN_UP)

    def check(self) -> None:
        """Check that no other process has taken the lease on the object store.

        Raises:
            StateError: ``store-taken``.
        """
        holder, _ = self._read()
        if holder is not None and holder.owner != self.id:
            raise taken(self.remote, f"process {holder.process} on {holder.host}")

    def _free(self, holder: Owner) -> bool:
        mine = (os.uname().nodename, str(self.root))
        if self.standby and time.monotonic() - self._since > MISSED * holder.every:
            return True
        return time.time() - holder.time > STALE or (holder.host, holder.root) == mine

    def _keep(self) -> None:
        while not self._ended.wait(self._every):
            try:
                self._renew()
            except (StateError, ChangedError) as error:
                # There is nothing else to do: if the lease is lost, the next commit fails.
                _LOG.warning("lease not renewed", error=str(error))

    def _renew(self, when: float | None = None) -> None:
        """Write the lease with the renewal time ``when`` (None: now).

        Raises:
            ChangedError: another process has written the lease.
        """
        host, process = os.uname().nodename, os.getpid()
        moment = time.time() if when is None else when
        owner = Owner(self.id, host, str(self.root), process, moment, self._every)
        content = json.dumps(asdict(owner)).encode()
        self._known = self.remote.replace(NAME, content, self._known)

    @property
    def _every(self) -> float:
        return OFTEN if self.standby else RENEWAL

    def _read(self) -> tuple[Owner | None, Version | None]:
        """Return the lease's owner (None: unknown), and the version of the lease's object."""
        found = self.remote.read(NAME)
        if found is None:
            return None, None
        try:
            return Owner(**json.loads(found[0])), found[1]
        except (ValueError, TypeError):
            return None, found[1]

    def _in_use(self, holder: Owner | None) -> StateError:
        who = "another process, which has just begun"
        if holder is not None:
            age = max(time.time() - holder.time, 0.0)
            who = f"process {holder.process} on {holder.host}, "
            who += f"which renewed its lease {age:.0f} s ago"
        return StateError(
            "store-in-use",
            f"{self.remote.where} is in use by {who}",
            remedy="stop that pipeline first, or give this one an object store of its own; "
            f"if it has been killed, try again in {STALE:.0f} seconds",
        )


def taken(remote: Remote, who: str) -> StateError:
    """Return the error for a process that has lost the lease to ``who``."""
    return StateError(
        "store-taken",
        f"{who} has taken over {remote.where}",
        remedy="leave the pipeline to that process, which repeats all uncommitted work",
    )
