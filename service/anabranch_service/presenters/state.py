"""Stored state as the REST API shows it (``docs/state.md``)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from anabranch_contract.codec import fields
from anabranch_contract.protocol.measurements import Snapshot, StoreStatistics
from anabranch_contract.protocol.reads import Reads
from anabranch_contract.protocol.state_report import (
    EdgeReport,
    StateReport,
    StoreParts,
    StoreReport,
)
from anabranch_contract.rest.state import (
    ReaderOut,
    StateOut,
    StoreDetailOut,
    StoreEpochOut,
    StoreOut,
)
from anabranch_service.presenters.statistics import edge_out
from anabranch_service.registry.store import Store

#: Number of epochs whose store statistics are cached in this process.
KEPT = 60


def reads_of(statistics: StoreStatistics) -> Reads:
    """Return the reads of a store in an epoch, summed over its indexes."""
    return sum(statistics.reads.values(), Reads())


def state_out(report: StateReport, statistics: Snapshot | None) -> StateOut:
    """Return the stores, with their reads in the epoch of ``statistics``."""
    stores = tuple(
        StoreOut(**fields(store), reads=_reads(store, statistics)) for store in report.stores
    )
    return StateOut(**{**fields(report), "stores": stores})


def store_detail_out(
    report: StateReport,
    store: StoreReport,
    parts: StoreParts | None,
    statistics: Snapshot | None,
    ruleset: Mapping[str, Any] | None,
    history: Sequence[StoreEpochOut],
) -> StoreDetailOut:
    """Return one store of ``report``; ``ruleset``: document of the running ruleset."""
    rules = {} if ruleset is None else {rule["out"]: rule for rule in ruleset["rules"]["probe"]}
    found = StoreDetailOut(
        **fields(store),
        reads=_reads(store, statistics),
        next_batch=report.next_batch,
        history=tuple(history),
    )
    if parts is None:
        return found
    return replace(
        found,
        parts_batch=parts.next_batch,
        parts=parts.segments,
        parts_omitted=parts.omitted,
        readers=tuple(_reader(edge, rules.get(edge.edge), statistics) for edge in parts.edges),
        readers_omitted=parts.edges_omitted,
    )


def _reads(store: StoreReport, statistics: Snapshot | None) -> Reads | None:
    known = None if statistics is None else statistics.stores.get(store.store)
    return reads_of(known) if known is not None and known.reads else None


def _reader(
    edge: EdgeReport, rule: Mapping[str, Any] | None, statistics: Snapshot | None
) -> ReaderOut:
    measured = None if statistics is None else statistics.edges.get(edge.edge)
    shown = ReaderOut(**fields(edge), statistics=None if measured is None else edge_out(measured))
    if rule is None:
        return shown
    key = tuple(f"{'.'.join(probe)} = {'.'.join(build)}" for probe, build, _ in rule["key"])
    return replace(shown, start=rule["start"], mir=rule["mir"], key=key)


@dataclass(slots=True)
class StoreHistory:
    """Cache of the store statistics of the last ``KEPT`` ended epochs.

    An epoch's statistics never change, and stores are only a small part of their document.
    """

    store: Store
    _known: dict[int, dict[str, StoreEpochOut]] = field(default_factory=dict)

    async def of(self, name: str, last: int, count: int) -> list[StoreEpochOut]:
        """Return the statistics of the store ``name`` in the ``count`` epochs up to ``last``,
        oldest first; epochs without a batch or without stored statistics are omitted."""
        found = []
        for epoch in range(max(last - count + 1, 0), last + 1):
            one = (await self._epoch(epoch)).get(name)
            if one is not None:
                found.append(one)
        return found

    async def _epoch(self, number: int) -> dict[str, StoreEpochOut]:
        if number in self._known:
            return self._known[number]
        statistics = await self.store.statistics(number)
        if statistics is None:
            return {}
        stores = statistics.stores if statistics.batches else {}
        made = {
            name: StoreEpochOut(number, store.rows, store.bytes, store.segments, reads_of(store))
            for name, store in stores.items()
        }
        self._known[number] = made
        while len(self._known) > KEPT:
            del self._known[min(self._known)]
        return made
