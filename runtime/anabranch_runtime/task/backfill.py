"""A task's share of a slice of a backfill (``epochs.backfill``)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from anabranch_contract.plans.ruleset import Edge, ProbeRule, StoreSpec
from anabranch_contract.queries.joins import Label, RelationId
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.expressions.evaluate import filter_mask
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.state.slices import SegmentRows, Slice, cut
from anabranch_runtime.storage.partial import Partial, RowSet, Tables
from anabranch_runtime.storage.segment_cache import open_segment

#: Maximum number of rows of the starting member that are joined at once.
CHUNK = 1 << 14


def as_probe(spec: StoreSpec, work: Slice) -> tuple[ProbeRule, Access]:
    """Return a slice's steps as a probe rule's fill steps, and its access: gaps, but no tiles."""
    steps = work.rule.steps
    rule = ProbeRule(
        edge=Edge(""),
        out=Edge(f"backfill:{work.store}"),
        start=work.rule.start,
        mir=spec.mir,
        store=spec.id,
        members=spec.members,
        key=steps[0].key,
        fill=steps,
    )
    return rule, Access((), work.gaps, work.fill)


def stored_rows(
    layout: Layout, root: str, sources: tuple[SegmentRows, ...], label: Label, task: int, tasks: int
) -> Iterator[Partial]:
    """Yield this task's share of the stored rows ``sources``, as members ``label``, in chunks."""
    rows = sum(s.rows for s in sources)
    first, last = rows * task // tasks, rows * (task + 1) // tasks
    left = cut(cut(sources, last)[0], first)[1]
    while left:
        chunk, left = cut(left, CHUNK)
        for source in chunk:
            found = _rows(layout, root, source, label)
            if found.length:
                yield found


def _rows(layout: Layout, root: str, source: SegmentRows, label: Label) -> Partial:
    """Return rows of ``source`` (in its batches, of the relation) as a partial result."""
    reader = open_segment(root, source.segment, layout.changed(source.store))
    rows = np.arange(source.first, source.last, dtype=np.int32)
    found = Partial(len(rows), (RowSet(Tables([reader]), None, rows),), {label: (0, "")}, label)
    low, high = source.interval
    if source.segment.first_batch < low or source.segment.last_batch > high:
        batch = found.batch(label)
        found = found.where((batch >= low) & (batch <= high))
    weaker = layout.missing_filter(RelationId(layout.relation_of[label]), source.store)
    if weaker and found.length:
        kept = filter_mask(weaker, lambda c: found.column(label, c.name), found.length)
        found = found.where(kept)
    return found
