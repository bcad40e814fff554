"""A task's share of a slice: the background work of a batch (``epochs.backfill``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from anabranch_contract.plans.ruleset import Edge, ProbeRule, StoreId
from anabranch_contract.queries.joins import Label, RelationId
from anabranch_runtime.expressions.evaluate import filter_mask
from anabranch_runtime.state.coverage import Access
from anabranch_runtime.state.slices import cut
from anabranch_runtime.storage.partial import Partial, RowSet, Tables
from anabranch_runtime.storage.segment_cache import open_segment
from anabranch_runtime.task.pieces import Pieces
from anabranch_runtime.task.stores import combination_rows, insert, merge

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from anabranch_contract.plans.ruleset import StoreSpec
    from anabranch_runtime.epochs.layout import Layout
    from anabranch_runtime.state.slices import Slice, Source
    from anabranch_runtime.storage.segment import PackWriter
    from anabranch_runtime.task.meters import Collector
    from anabranch_runtime.task.probe import Prober
    from anabranch_runtime.task.stores import KeyCache

#: Rows of the start member that are joined together.
CHUNK = 1 << 14


def fill_slice(
    writer: PackWriter,
    prober: Prober,
    collector: Collector,
    root: str,
    work: Slice,
    task: int,
    tasks: int,
    advanced: Callable[[], None],
) -> list[int]:
    """Append to ``writer`` what ``task`` of ``tasks`` computes of ``work``.

    Args:
        collector: measures what goes into the store.
        advanced: called whenever the task has got further.

    Returns:
        The numbers of ``work.merges`` that were done.
    """
    layout = prober.layout
    spec = layout.specs[StoreId(work.store)]
    rule, access = _as_probe(spec, work)
    pieces = Pieces(prober)
    for start in stored_rows(layout, root, work.sources, work.rule.start, task, tasks):
        advanced()
        for found in pieces.probe(start, rule, access):
            cache: KeyCache = {}
            insert(writer, layout, spec, combination_rows(layout, spec, found), cache)
            collector.stored(spec, cache)
    merged = list(range(task, len(work.merges), tasks))
    for number in merged:
        advanced()
        readers = [open_segment(root, s) for s in work.merges[number].segments]
        for reader in readers:
            reader.verify()
        # What has been superseded among them goes when the store is merged.
        merge(writer, layout, spec, readers, since={})
    return merged


def _as_probe(spec: StoreSpec, work: Slice) -> tuple[ProbeRule, Access]:
    """The slice's steps as what answers a probe of the MIR whose past is all gap."""
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
    layout: Layout, root: str, sources: tuple[Source, ...], label: Label, task: int, tasks: int
) -> Iterator[Partial]:
    """The rows of ``sources`` that fall to ``task`` of ``tasks``, as members ``label``, chunk by
    chunk.
    """
    rows = sum(s.rows for s in sources)
    first, last = rows * task // tasks, rows * (task + 1) // tasks
    left = cut(cut(sources, last)[0], first)[1]
    while left:
        chunk, left = cut(left, CHUNK)
        for source in chunk:
            found = _rows(layout, root, source, label)
            if found.length:
                yield found


def _rows(layout: Layout, root: str, source: Source, label: Label) -> Partial:
    """A source's rows that count, as partial results of one label."""
    reader = open_segment(root, source.segment)
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
