"""Ownership of an object store's pipeline: a lease, renewed for as long as its owner lives.

The lease is an object that names its owner and when it was last renewed. It is taken where there is
none, where its owner has given it up or has not renewed it for ``STALE`` seconds, or where its
owner was a process over the same state directory of the same host: that one has gone, since this
one holds the directory's lock. It changes only as it was read (``object_store``): of several that
take it one has it, and an owner who has lost it finds out when it renews it.

It decides which process goes on, and does not guard the data: documents change only as they were
read, too, so a process that stood still, or whose clock is wrong, overwrites nothing (``durable``).
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
#: Seconds between two renewals, and until an unrenewed lease may be taken. The difference is the
#: tolerated difference of hosts' clocks.
RENEWAL, STALE = 10.0, 60.0
#: Renewal time of a lease that its owner has given up.
GIVEN_UP = 0.0

_LOG = structlog.get_logger("anabranch.runtime")


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a lease; ``time``: of the renewal, in seconds since 1970."""

    owner: str
    host: str
    root: str
    process: int
    time: float


@dataclass(slots=True)
class StoreLease:
    """This process's hold of a store."""

    remote: Remote
    root: Path
    id: str = field(default_factory=lambda: uuid.uuid4().hex)
    _ended: threading.Event = field(default_factory=threading.Event)
    #: The lease as it was read or written last.
    _known: Version | None = None

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the store; the caller holds the state directory's lock.

        Raises:
            StateError: ``store-in-use``: another process holds it.
        """
        holder, self._known = self._read()
        if holder is not None and not self._free(holder):
            raise self._in_use(holder)
        try:
            self._renew()
        except ChangedError:
            # Another process has taken it in the same moment.
            holder, _ = self._read()
            raise self._in_use(holder) from None
        thread = threading.Thread(target=self._keep, name="lease", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._ended.set()
            thread.join()
            with suppress(StateError, ChangedError):
                self._renew(GIVEN_UP)

    def check(self) -> None:
        """Check that no other process has taken the store.

        Raises:
            StateError: ``store-taken``.
        """
        holder, _ = self._read()
        if holder is not None and holder.owner != self.id:
            raise taken(self.remote, f"process {holder.process} on {holder.host}")

    def _free(self, holder: Owner) -> bool:
        mine = (os.uname().nodename, str(self.root))
        return time.time() - holder.time > STALE or (holder.host, holder.root) == mine

    def _keep(self) -> None:
        while not self._ended.wait(RENEWAL):
            try:
                self._renew()
            except (StateError, ChangedError) as error:
                # The next commit fails by itself.
                _LOG.warning("lease not renewed", error=str(error))

    def _renew(self, when: float | None = None) -> None:
        """Write it again as renewed at ``when`` (now).

        Raises:
            ChangedError: somebody else has written it.
        """
        host, process = os.uname().nodename, os.getpid()
        moment = time.time() if when is None else when
        content = json.dumps(asdict(Owner(self.id, host, str(self.root), process, moment))).encode()
        self._known = self.remote.replace(NAME, content, self._known)

    def _read(self) -> tuple[Owner | None, Version | None]:
        """The lease's owner, None where it is not known, and the version of the object."""
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
    """The error of a process that has lost the store to ``who``."""
    return StateError(
        "store-taken",
        f"{who} has taken over {remote.where}",
        remedy="leave it to that process: what this one had not committed is done there",
    )
