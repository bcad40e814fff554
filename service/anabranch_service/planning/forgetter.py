"""Removal of queries that ended long ago, by the leading service.

The time when a run of a query was first seen to have ended is stored beside its record. Removing a
run deletes its record, its activations and its view's rows; a query's newest run is removed last.
The name of that run stays (some 30 bytes): a later run of the query gets the next number, so that
it never writes to the results folder of an earlier run.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import structlog

from anabranch_contract.queries.outer_joins import registered
from anabranch_contract.queries.runs import query_of
from anabranch_service.clock import Clock
from anabranch_service.registry.lifecycle import LIVE, newest_runs, status_of
from anabranch_service.registry.publishing.lease import LeadershipLost, Lease
from anabranch_service.registry.publishing.publication import Publication
from anabranch_service.registry.records import QueryRecord
from anabranch_service.registry.store import Store

#: Seconds between two rounds, which remove queries that ended long ago.
EVERY = 60.0
#: Maximum number of runs removed per round.
MOST = 500

_LOG = structlog.get_logger(__name__)


class Forgetter:
    """Removes runs that ended at least ``days`` ago, once a minute."""

    def __init__(self, store: Store, lease: Lease, days: float, clock: Clock) -> None:
        self._store, self._lease, self._clock = store, lease, clock
        self._seconds = days * 86_400

    async def run(self) -> None:
        """Remove ended runs once a minute until cancelled."""
        while True:
            await asyncio.sleep(EVERY)
            try:
                while await self.turn() == MOST:
                    await asyncio.sleep(0)
            except LeadershipLost:
                pass
            except Exception as cause:  # noqa: BLE001 - logged; the next round tries again
                _LOG.warning("ended queries not forgotten", reason=repr(cause))

    async def turn(self) -> int:
        """Remove runs that ended long enough ago, if this process leads; returns their number.

        Raises:
            LeadershipLost: another service leads.
        """
        term = self._lease.term
        if term is None:
            return 0
        store, now = self._store, self._clock()
        records, activations = await store.queries(), await store.activations()
        progress, known = await store.progress(), await store.ended()

        def is_over(one: QueryRecord) -> bool:
            return status_of(one, activations.get(one.id), progress, now) not in LIVE

        ended = {one.id for one in records if is_over(one)}
        seconds = now.timestamp()
        due = {run for run in ended if seconds - known.get(run, seconds) >= self._seconds}
        names = whole(records, due)[:MOST]
        chosen, present = set(names), {one.id for one in records}
        # A running runtime still needs the activations of failed queries. Activations of other
        # runs without a record are removed again, since the runtime may have rewritten them.
        gone = [
            name
            for name, one in activations.items()
            if one.failure is None
            and one.expired_batch is not None
            and (registered(name) in chosen or registered(name) not in present)
        ]
        await Publication(store, term).forget_runs(
            names,
            gone[: 2 * MOST],
            fresh=dict.fromkeys(sorted(ended - known.keys())[:MOST], seconds),
            stale=[run for run in known if run not in ended or run in chosen][: 2 * MOST],
        )
        if names:
            _LOG.info("ended queries forgotten", runs=len(names))
        return len(names)


def whole(records: Iterable[QueryRecord], due: set[str]) -> list[str]:
    """Return the ``due`` runs that can be removed, oldest first: a query's newest run only if all
    its other runs are gone or removed with it. ``records``: in order of registration."""
    records = list(records)
    newest = {one.id for one in newest_runs(records)}
    kept = {query_of(one.id) for one in records if one.id not in due}
    return [
        one.id
        for one in records
        if one.id in due and (one.id not in newest or query_of(one.id) not in kept)
    ]
