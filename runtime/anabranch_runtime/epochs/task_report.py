"""The report of one task about its share of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

import pyarrow as pa

from anabranch_contract.protocol.activations import Failure
from anabranch_contract.protocol.measurements import EdgeStatistics, Writes
from anabranch_contract.protocol.reads import Reads
from anabranch_runtime.sources.feed import UnreadNote
from anabranch_runtime.state.measures import StreamMeter
from anabranch_runtime.state.values import ValueCounts
from anabranch_runtime.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class SampledRows:
    """A task's part of a stream's sample.

    Attributes:
        seen: tuples that it was picked from. ``rows``: candidates for the sample.
    """

    seen: int
    rows: pa.RecordBatch | None


@dataclass(slots=True)
class TaskReport:
    """One task's work in a batch; it travels to the driver as it is.

    Attributes:
        segments: written segments, in the order of writing.
        streams: stream -> meter of its arrivals, with delays only of tuples that were behind.
        arrivals: relation -> tuples.
        sketches: relation, or ``STORE`` and a store -> key -> packed hashes (``state.measures``).
        values: relation -> attribute -> counts of its values.
        edges: edge -> counts of its probe.
        reads: store -> index -> counts of lookups.
        inserts: writes of rows into stores, without a backfill's.
        emitted: writes of results.
        results: query -> rows. ``files``: query -> staged file of them.
        kept: in batches that withhold tuples, query -> label that arrived last -> rows.
        caught_up: query -> rows among its results that batches before had withheld.
        late: stream -> staged file of rejected tuples.
        unread: pieces of the task's share that it could not read.
        failures: query -> why it has no results.
        backfilled: segments of the batch's slice of a backfill; ``backfill_merged``: numbers of its
            finished merges; ``backfill_failed``: why the backfill has to be given up.
        memory: greatest private memory seen; ``memory_share``: its limit (None: any number). Bytes.
        fetched_bytes: of packs that were fetched from the object store.
        host: host of the task (``exchange.host``); empty where all tasks share a state directory.
            ``site``: of that host. ``office``: address at which its process takes merges
            (``spark.merges``).
        load: number of partitions -> CPU seconds of probes by partition; none on one host.
        demand: number of partitions -> bytes of tuples that arrived on the host, by the partition
            that needs them (``exchange.traffic``); none on one host.
        sent: edge, or store, -> tuples that were sent to other hosts. ``sent_bytes``: of all.
        phases: wall seconds: ``read`` (arrivals), ``store``, ``wait`` (for other tasks), ``probe``
            (with projections and result pages), ``catch-up``, ``write`` (closing result files),
            ``backfill``, ``upload`` (waiting for uploads).
    """

    segments: list[Segment] = field(default_factory=list)
    streams: dict[str, StreamMeter] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    sketches: dict[str, dict[str, str]] = field(default_factory=dict)
    samples: dict[str, SampledRows] = field(default_factory=dict)
    values: dict[str, dict[str, ValueCounts]] = field(default_factory=dict)
    edges: dict[str, EdgeStatistics] = field(default_factory=dict)
    reads: dict[str, dict[str, Reads]] = field(default_factory=dict)
    inserts: Writes = field(default_factory=Writes)
    emitted: Writes = field(default_factory=Writes)
    results: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    kept: dict[str, dict[str, int]] = field(default_factory=dict)
    caught_up: dict[str, int] = field(default_factory=dict)
    late: dict[str, str] = field(default_factory=dict)
    unread: list[UnreadNote] = field(default_factory=list)
    failures: dict[str, Failure] = field(default_factory=dict)
    backfilled: list[Segment] = field(default_factory=list)
    backfill_merged: list[int] = field(default_factory=list)
    backfill_failed: str = ""
    memory: int = 0
    memory_share: int | None = None
    fetched_bytes: int = 0
    host: str = ""
    site: str = ""
    office: str = ""
    load: dict[int, list[float]] = field(default_factory=dict)
    demand: dict[int, list[float]] = field(default_factory=dict)
    sent: dict[str, int] = field(default_factory=dict)
    sent_bytes: int = 0
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def packs(self) -> set[str]:
        """The packs that the task has written."""
        return {s.path for s in (*self.segments, *self.backfilled)}

    @property
    def tuples(self) -> int:
        """Tuples that it has read."""
        return sum(meter.input for meter in self.streams.values())
