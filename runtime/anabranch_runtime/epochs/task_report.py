"""What a task reports of its share of a batch."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch_contract.protocol.reads import ReadCounts
    from anabranch_runtime.expressions.failures import FailureNote
    from anabranch_runtime.state.manifest import EdgeCounts


@dataclass(slots=True)
class TaskReport:
    """What one task of a batch did; travels to the driver as JSON."""

    segments: list[dict[str, Any]] = field(default_factory=list)
    streams: dict[str, dict[str, Any]] = field(default_factory=dict)
    arrivals: dict[str, int] = field(default_factory=dict)
    sketches: dict[str, dict[str, str]] = field(default_factory=dict)
    delays: dict[str, tuple[int, ...]] = field(default_factory=dict)
    samples: dict[str, tuple[int, str]] = field(default_factory=dict)
    edges: dict[str, EdgeCounts] = field(default_factory=dict)
    #: Store -> index -> what was asked of it.
    reads: dict[str, dict[str, ReadCounts]] = field(default_factory=dict)
    results: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    #: Stream -> staged file of what was set aside.
    late: dict[str, str] = field(default_factory=dict)
    #: Pieces of the task's share that it could not read (``sources.batch_input.note``).
    unread: list[dict[str, Any]] = field(default_factory=list)
    #: Query -> why its results can't be had.
    failures: dict[str, FailureNote] = field(default_factory=dict)
    #: Segments of the batch's slice of a backfill, and which of its merges were done.
    backfilled: list[dict[str, Any]] = field(default_factory=list)
    backfill_merged: list[int] = field(default_factory=list)
    #: Why the backfill has to be given up.
    backfill_failed: str = ""
    #: The most private memory that was seen, and what it should have stayed below (None: any
    #: number); bytes.
    memory: int = 0
    memory_share: int | None = None
    #: Packs that were fetched from the object store, and their bytes.
    fetched: tuple[int, int] = (0, 0)
    #: Wall seconds: ``read`` (arrivals), ``store``, ``wait`` (for other tasks), ``probe`` (with
    #: projections and result pages), ``write`` (closing result files), ``backfill``, ``upload``
    #: (what had to be waited for).
    phases: dict[str, float] = field(default_factory=dict)
