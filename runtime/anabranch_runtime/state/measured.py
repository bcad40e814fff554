"""Measurements of one task in one batch, and their sums over batches and tasks."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, TypeVar

import pyarrow as pa

from anabranch_contract.protocol.measurements import EdgeStatistics, JoinSample, Writes
from anabranch_contract.protocol.reads import Reads
from anabranch_runtime.cpu import CpuUses
from anabranch_runtime.state.measures import STORE, StreamMeter
from anabranch_runtime.state.values import KeyValues, ValueCounts
from anabranch_runtime.traced import changed

_T = TypeVar("_T")
#: Store -> index -> counts of look-ups.
StoreReads = Mapping[str, dict[str, Reads]]


def added(known: dict[str, _T], parts: Iterable[Mapping[str, _T]]) -> dict[str, _T]:
    """Add mappings of measurements to ``known``, key by key; values are of a type with ``+``."""
    found = dict[str, Any]()
    for part in parts:
        for key, more in part.items():
            before: Any = found[key] if key in found else known.get(key)
            found[key] = more if before is None else before + more
    return changed(known, found)


def sum_reads(
    known: dict[str, dict[str, Reads]], *more: StoreReads, stores: Container[str]
) -> dict[str, dict[str, Reads]]:
    """Sum counts of look-ups in ``stores``, without other stores; unchanged objects are shared."""
    found = known
    if any(store not in stores for store in known):
        found = {store: by_index for store, by_index in known.items() if store in stores}
    fresh = dict[str, dict[str, Reads]]()
    for store, by_index in ((s, r) for one in more for s, r in one.items() if s in stores):
        fresh[store] = added(fresh.get(store) or found.get(store, {}), [by_index])
    return changed(found, fresh)


class SampledRows(NamedTuple):
    """A task's candidates for a stream's sample: ``rows``, picked from ``seen`` tuples."""

    seen: int
    rows: pa.RecordBatch | None


@dataclass(slots=True)
class TaskMeasures:
    """Measurements of one task in one batch.

    Attributes:
        streams: stream -> counts, event times and delays of its arrivals.
        arrivals: relation (stream under filters) -> number of tuples.
        sketches: relation, or ``STORE`` + store name -> key -> distinct-count sketch, packed
            (``state.measures``).
        samples: stream -> candidates for its sample. ``latest``: stream -> its latest rows.
        values: relation -> key attribute -> counts of its frequent values.
        edges: edge -> counts of inputs and outputs of its probe.
        reads: store -> index -> counts of look-ups.
        inserts: writes of rows into stores, except those by backfills.
        emitted: writes of results.
        cpu: CPU seconds of the task's process since its last batch, by use (group and name).
        sent: edge or store -> number of tuples sent to other hosts. ``sent_bytes``: their bytes.
    """

    streams: dict[str, StreamMeter] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    sketches: dict[str, dict[str, str]] = field(default_factory=dict)
    samples: dict[str, SampledRows] = field(default_factory=dict)
    latest: dict[str, pa.RecordBatch] = field(default_factory=dict)
    values: dict[str, dict[str, ValueCounts]] = field(default_factory=dict)
    edges: dict[str, EdgeStatistics] = field(default_factory=dict)
    reads: dict[str, dict[str, Reads]] = field(default_factory=dict)
    inserts: Writes = field(default_factory=Writes)
    emitted: Writes = field(default_factory=Writes)
    cpu: CpuUses = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    sent_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Measurements:
    """Measurements of all batches, and of the current epoch.

    Attributes:
        sketches: relation or store of a join (with a prefix) -> key -> sketch of its distinct
            values (``state.measures``). ``values``: relation -> key attribute -> its frequent
            values (``state.values``).
        edges: counts of the current epoch, by edge, since the running ruleset took over.
        reads: store -> index -> look-ups in the current epoch; ``reads_before``: in earlier ones.
        probes: epoch -> number of probing tuples.
        meters: activity of each stream in the current epoch. ``ran``: times (seconds since 1970) at
            which its first batch began and its last one was added; None before the first.
        steps: measured input and output sizes of joins in earlier epochs; ``epoch_steps``: in the
            current epoch, before its ruleset was revised.
        written: bytes of all segments ever written by batches, and by merges (without backfills).
    """

    arrivals: dict[str, int] = field(default_factory=dict)
    sketches: dict[str, dict[str, str]] = field(default_factory=dict)
    values: dict[str, dict[str, KeyValues]] = field(default_factory=dict)
    edges: dict[str, EdgeStatistics] = field(default_factory=dict)
    reads: dict[str, dict[str, Reads]] = field(default_factory=dict)
    reads_before: dict[str, dict[str, Reads]] = field(default_factory=dict)
    probes: dict[str, int] = field(default_factory=dict)
    meters: dict[str, StreamMeter] = field(default_factory=dict)
    ran: tuple[float, float] | None = None
    steps: tuple[JoinSample, ...] = ()
    epoch_steps: tuple[JoinSample, ...] = ()
    processing_seconds: float = 0.0
    written: tuple[int, int] = (0, 0)

    def in_epoch(
        self, epochs: Collection[str], newest: Mapping[str, int | None], stores: Collection[str]
    ) -> Measurements:
        """Return the measurements as they are at the start of a new epoch.

        Args:
            epochs: epochs whose counts are kept. ``newest``: stream -> greatest event time.
            stores: the new epoch's stores; counts of reads of other stores are dropped.
        """
        return replace(
            self,
            probes={epoch: count for epoch, count in self.probes.items() if epoch in epochs},
            edges={},
            epoch_steps=(),
            reads={},
            reads_before=sum_reads(self.reads_before, self.reads, stores=stores),
            meters={stream: StreamMeter(since=tau) for stream, tau in newest.items()},
            ran=None if self.ran is None else (self.ran[1], self.ran[1]),
        )

    def of_stores(self, stores: Collection[str]) -> Measurements:
        """Return the measurements without counts of reads of stores other than ``stores``."""
        reads, before = (
            {name: counts for name, counts in known.items() if name in stores}
            for known in (self.reads, self.reads_before)
        )
        return replace(self, reads=reads, reads_before=before)

    def of_relations(self, relations: Collection[str]) -> Measurements:
        """Return the measurements without counts, sketches and values of other ``relations``."""
        return replace(
            self,
            arrivals={name: n for name, n in self.arrivals.items() if name in relations},
            sketches={
                owner: keys
                for owner, keys in self.sketches.items()
                if owner.startswith(STORE) or owner in relations
            },
            values={owner: keys for owner, keys in self.values.items() if owner in relations},
        )
