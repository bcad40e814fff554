"""Cutover of queries to new runs that have caught up, by the leading service.

A cutover takes two writes, each atomic, so that any service can continue it after a crash. First
the new run is marked as caught up, so the next planned epoch omits the old run. When the runtime
has reported the end of the old run, and the new run's table includes the old run's last batch, the
query's name is made to mean the new run, as of that batch.
"""

from __future__ import annotations

import asyncio
from functools import partial

import structlog

from anabranch_contract.protocol.activations import Activation
from anabranch_contract.protocol.progress import Progress
from anabranch_service.clock import Clock
from anabranch_service.errors import Conflict
from anabranch_service.registry.cutover import lack
from anabranch_service.registry.lifecycle import LIVE, status_of
from anabranch_service.registry.publishing.lease import LeadershipLost, Lease
from anabranch_service.registry.publishing.publication import Publication
from anabranch_service.registry.records import WAITS, QueryRecord
from anabranch_service.registry.store import Store
from anabranch_service.tables.described import newest_batch

#: Seconds between two turns.
EVERY = 0.25

_LOG = structlog.get_logger(__name__)


class Cutovers:
    """Advances the cutovers of all queries, a few times a second."""

    def __init__(self, store: Store, lease: Lease, clock: Clock) -> None:
        self._store, self._lease, self._clock = store, lease, clock

    async def run(self) -> None:
        """Call :meth:`turn` periodically until cancelled; failures are logged."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.turn()
            except LeadershipLost:
                pass
            except Exception as cause:  # noqa: BLE001 - logged; the next turn tries again
                _LOG.warning("cutovers not advanced", reason=repr(cause))

    async def turn(self) -> None:
        """Advance the cutovers, if this process leads.

        Raises:
            LeadershipLost: another service leads.
        """
        term, store, now = self._lease.term, self._store, self._clock()
        if term is None:
            return
        records, index = await store.indexed_queries()
        waiting = index.get(WAITS, {}).values()
        if not waiting:
            return
        activations, progress = await store.activations(), await store.progress()
        publication, known = Publication(store, term), {one.id: one for one in records}
        for run in waiting:
            own, before = activations.get(run.id), activations.get(run.replaces)
            if status_of(run, own, progress, now) not in LIVE and not run.caught_up:
                continue
            old = known.get(run.replaces)
            gone = old is None or status_of(old, before, progress, now) not in LIVE
            if not gone and not run.caught_up and lack(run, activations, progress) is None:
                await publication.query(run.id, partial(_changed, caught_up=True))
            if not gone or own is None:
                continue
            end = None if before is None else before.expired_batch
            last = -1 if end is None else end - 1
            if await asyncio.to_thread(_includes, run, progress, own, last):
                change = partial(_changed, caught_up=True, read_from=last)
                if await publication.query(run.id, change, takes_over=run.replaces) is not None:
                    _LOG.info("query cut over", query=run.id, batch=last)


def _changed(record: QueryRecord, **changes: object) -> QueryRecord:
    return record.model_copy(update=changes)


def _includes(
    run: QueryRecord, progress: Progress | None, activation: Activation, batch: int
) -> bool:
    """Whether the table of ``run`` includes ``batch``; true if its results can't be read here."""
    try:
        return newest_batch(run, progress, activation) >= batch
    except (Conflict, OSError):
        return True
