"""Recording of rates, batch times and ages, one point per minute, by the leading service."""

from __future__ import annotations

import asyncio
import time

import structlog

from anabranch_contract.protocol.progress import Progress
from anabranch_service.registry.publishing.history import EVERY, point
from anabranch_service.registry.publishing.lease import LeadershipLost, Lease
from anabranch_service.registry.publishing.publication import Publication
from anabranch_service.registry.store import Store

_LOG = structlog.get_logger(__name__)


class Recorder:
    """Records rates, batch times and ages per minute, from differences of the runtime's counts."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self._store, self._lease = store, lease
        self._last: tuple[float, Progress] | None = None

    async def run(self) -> None:
        """Record a point at the end of each minute until cancelled."""
        while True:
            await asyncio.sleep(EVERY - time.time() % EVERY)
            try:
                await self.turn(time.time())
            except LeadershipLost:
                self._last = None
            except Exception as cause:  # noqa: BLE001 - logged; the history lacks one minute
                _LOG.warning("no history", reason=repr(cause))

    async def turn(self, now: float) -> None:
        """Record a point for the time since the previous call, if this process leads.

        Raises:
            LeadershipLost: another service leads.
        """
        term = self._lease.term
        progress = None if term is None else await self._store.progress()
        last, self._last = self._last, None if progress is None else (now, progress)
        if term is None or progress is None or last is None:
            return
        working = await self._store.heartbeat() is not None
        seconds = max(now - last[0], 1e-3)
        found = point(last[1], progress, round(now), seconds, working=working)
        if found is not None:
            await Publication(self._store, term).history(found)
