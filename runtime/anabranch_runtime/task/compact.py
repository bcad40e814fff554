"""Merges of some segments of one store partition into one segment."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from anabranch_contract.plans.ruleset import StoreId
from anabranch_contract.protocol.profile import CpuGroup
from anabranch_runtime.cpu import metered
from anabranch_runtime.epochs.annihilation import Boundaries
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.faults import Point, reach
from anabranch_runtime.storage.durable import attach, durable
from anabranch_runtime.storage.segment import (
    UNCHANGED,
    ChangedColumns,
    Merge,
    PackWriter,
    Segment,
    SegmentReader,
)
from anabranch_runtime.storage.segment_cache import read_segment
from anabranch_runtime.task.stores import merge

#: Prefix of the names of packs that merges write.
MERGED = "merged-"


@dataclass(frozen=True, slots=True)
class Compaction:
    """One merge of segments, to be run by any task or thread.

    Attributes:
        root: the state directory. ``pack``: the file to write, below it.
        layout: the epoch's layout, which has the indexes of the new segment.
        since: stream that keeps the latest per key -> first batch whose tuples supersede others of
            their key.
        objects: the object store behind the state directory, if there is one.
        boundaries: batches at which readers' ranges begin; changes cancel only within one range.
        past: whether the parts are a backfill's results, whose costs are not the plan's.
    """

    root: str
    pack: str
    merge: Merge
    layout: Layout
    since: Mapping[str, int] = field(default_factory=dict)
    objects: str | None = None
    boundaries: Boundaries = field(default_factory=dict)
    past: bool = False


@dataclass(frozen=True, slots=True)
class MergedSegment:
    """Result of a merge.

    Attributes:
        segment: takes the place of the merged parts; superseded rows are left out.
        seconds: CPU seconds of the merging thread only, since tasks may run in other threads.
    """

    segment: Segment
    seconds: float


def compact(work: Compaction) -> MergedSegment:
    """Merge the parts (segments) of ``work`` into one segment.

    Raises:
        StateError: a part is damaged or missing.
    """
    return compact_together([work])[0]


def compact_together(works: Sequence[Compaction]) -> list[MergedSegment]:
    """Merge the parts of each of ``works`` into one segment, all in the pack of the first one: for
    small merges, it costs more to create and sync a file than to write the rows.

    Raises:
        StateError: a part is damaged or missing; no segment has been written.
    """
    first, seconds = works[0], list[float]()
    attach(first.root, first.objects)

    def write(writer: PackWriter, parts: Sequence[SegmentReader]) -> None:
        work, began = works[len(seconds)], time.thread_time()
        spec = work.layout.specs[StoreId(work.merge.segments[0].store)]
        with metered(CpuGroup.MERGE, spec.id):
            merge(writer, work.layout, spec, parts, work.since, work.boundaries)
        seconds.append(time.thread_time() - began)

    began, merges = time.thread_time(), [work.merge for work in works]
    segments = rewrite(Path(first.root), first.pack, merges, write, first.layout.changed)
    # The time to open, check and write files is divided equally among the merges.
    rest = (time.thread_time() - began - sum(seconds)) / len(works)
    return [MergedSegment(s, own + rest) for s, own in zip(segments, seconds, strict=True)]


def rewrite(
    root: Path,
    pack: str,
    merges: Sequence[Merge],
    write: Callable[[PackWriter, Sequence[SegmentReader]], None],
    changed: Callable[[str], ChangedColumns] = lambda _: UNCHANGED,
) -> list[Segment]:
    """Let ``write`` rewrite the parts of each of ``merges`` as one segment in ``pack``, which is
    below ``root``.

    Raises:
        StateError: a part is damaged or missing.
    """
    with PackWriter(root, pack) as writer:
        for parts in merges:
            reach(Point.MERGING)
            readers = [read_segment(str(root), s, changed(s.store)) for s in parts.segments]
            for reader in readers:
                reader.verify()
            write(writer, readers)
    durable(root).upload(pack)
    reach(Point.MERGED)
    return writer.segments


def merged_pack() -> str:
    """Return a unique name for the pack that a merge writes."""
    return f"segments/{MERGED}{uuid.uuid4().hex}.pack"
