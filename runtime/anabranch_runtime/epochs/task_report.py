"""Report of one task about its part of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field

from anabranch_contract.protocol.activations import Failure
from anabranch_runtime.sources.feed import UnreadNote
from anabranch_runtime.state.debt import RationReport
from anabranch_runtime.state.measured import TaskMeasures
from anabranch_runtime.state.placement import HostReport
from anabranch_runtime.state.slices import SliceReport
from anabranch_runtime.storage.segment import Segment


@dataclass(slots=True)
class TaskReport:
    """Results, files and measurements of one task in one batch, sent to the driver.

    Attributes:
        segments: written segments, in the order of writing.
        results: query -> number of result rows. ``files``: query -> staged file of these rows.
        joined: rows of joins with post-join parts (``sinks.joined_rows``). ``feeds``: join whose
            rows several queries share -> these queries.
        late: stream -> staged file of rejected tuples.
        unread: pieces of input assigned to the task that it could not read.
        failures: query -> expression error that made it fail.
        memory: greatest private memory in bytes. ``memory_share``: its limit in bytes, or None.
        fetched_bytes: bytes of pack files fetched from the object store.
        phases: wall seconds: ``read`` (arrivals), ``store``, ``wait`` (for other tasks), ``probe``
            (with projections and result pages), ``catch-up``, ``write`` (closing result files),
            ``backfill``, ``upload`` (waiting for uploads).
    """

    segments: list[Segment] = field(default_factory=list)
    results: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    joined: list[Segment] = field(default_factory=list)
    feeds: dict[str, tuple[str, ...]] = field(default_factory=dict)
    late: dict[str, str] = field(default_factory=dict)
    unread: list[UnreadNote] = field(default_factory=list)
    failures: dict[str, Failure] = field(default_factory=dict)
    measured: TaskMeasures = field(default_factory=TaskMeasures)
    rations: RationReport = field(default_factory=RationReport)
    backfill: SliceReport = field(default_factory=SliceReport)
    host: HostReport = field(default_factory=HostReport)
    memory: int = 0
    memory_share: int | None = None
    fetched_bytes: int = 0
    phases: dict[str, float] = field(default_factory=dict)

    @property
    def packs(self) -> set[str]:
        """Names of the pack files that the task has written."""
        return {s.path for s in (*self.segments, *self.backfill.segments, *self.joined)}

    @property
    def tuples(self) -> int:
        """Number of input tuples that the task has read."""
        return sum(meter.input for meter in self.measured.streams.values())
