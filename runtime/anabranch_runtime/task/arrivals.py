"""A batch's arrivals: from blocks of a stream to the tables of its relations.

Blocks are Arrow record batches of one stream. A tuple is invalid if its event time is NULL, or its
operation unknown (in a stream of changes); in the future if its event time exceeds the stream's
limit for this batch; and late if its event time lies below the stream's watermark at the start of
the batch. All three are counted and rejected (and quarantined, if the stream keeps them): neither
stored nor probed (``semantics.md``, promise 5). In a stream that keeps the latest per key, tuples
superseded within their own block are dropped. The remaining tuples get their sigma (number in the
arrival order), and in a stream of changes the weight in place of the operation. Each goes to every
relation whose filter it passes. A relation whose filter fails gets no table.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from anabranch_contract.plans.routes import LAST_RANK
from anabranch_contract.queries.changes import TUPLE_WEIGHT
from anabranch_contract.queries.joins import Relation, RelationId, Stream
from anabranch_runtime.columns.arrays import fixed
from anabranch_runtime.epochs.layout import Layout
from anabranch_runtime.errors import AnabranchRuntimeError, PipelineError
from anabranch_runtime.expressions.evaluate import filter_mask
from anabranch_runtime.expressions.failures import EVALUATION
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.index.latest import superseded
from anabranch_runtime.sinks.late import aside
from anabranch_runtime.state.measures import StreamMeter
from anabranch_runtime.storage.segment import OFFSET_BITS, SIGMA, TAU
from anabranch_runtime.task.meters import Collector
from anabranch_runtime.task.weights import weights_of

if TYPE_CHECKING:  # its readers need more memory than a task has
    from anabranch_runtime.sources.blocks import Block

#: Number of sigmas (arrival numbers) in a batch for each rank of streams (``Routes.ranks``).
_OF_A_RANK = 1 << (OFFSET_BITS - 2)


@dataclass(slots=True)
class TaskArrivals:
    """A task's share of a batch's input: tables by relation; counts, rejected rows by stream."""

    tables: dict[RelationId, BatchTable] = field(default_factory=dict)
    meters: dict[str, StreamMeter] = field(default_factory=lambda: defaultdict(StreamMeter))
    aside: dict[str, list[pa.RecordBatch]] = field(default_factory=lambda: defaultdict(list))
    #: Least sigma (arrival number) greater than the sigmas of all tuples of the task.
    next_sigma: int = 0

    def count(self, stream: str, meter: StreamMeter) -> None:
        """Add ``meter`` to the counts of arriving tuples of ``stream``."""
        self.meters[stream] += meter


def _raise(_: RelationId, error: AnabranchRuntimeError) -> None:
    raise error


def take_in(
    layout: Layout,
    batch: int,
    task: int,
    watermarks: Mapping[str, int],
    blocks: Iterable[Block],
    collector: Collector | None = None,
    failed: Callable[[RelationId, AnabranchRuntimeError], None] = _raise,
    newest_allowed: Mapping[str, int] | None = None,
    redefined: frozenset[str] = frozenset(),
    tasks: int = 1,
) -> TaskArrivals:
    """Make a table of arrivals per relation from ``blocks``, the input of one of ``tasks`` tasks.

    ``failed`` is called with a relation whose filter can't be evaluated. Tuples of ``redefined``
    streams are only counted: their columns differ from the ruleset's.

    The low bits of a sigma come from a range of the task, so a sigma is unique over all streams of
    the batch. Any order within a batch is correct: results do not depend on it.

    Raises:
        PipelineError: the blocks have more tuples than the task's range has sigmas.
    """
    arrivals = TaskArrivals()
    by_stream: dict[str, list[Relation]] = defaultdict(list)
    for relation in layout.ruleset.relations:
        by_stream[relation.stream].append(relation)
    pieces: dict[RelationId, list[pa.RecordBatch]] = defaultdict(list)
    broken: set[RelationId] = set()
    sigma = (batch << OFFSET_BITS) + task * (_OF_A_RANK // tasks)
    for block in blocks:
        if block.stream in redefined:
            invalid = 0 if block.invalid is None else block.invalid.num_rows
            arrivals.count(block.stream, StreamMeter(block.rows.num_rows + invalid))
            continue
        newest = (newest_allowed or {}).get(block.stream)
        if newest is not None:
            block = _without_ahead(layout, batch, watermarks, newest, block, arrivals)
        if collector is not None:
            arrivals.count(block.stream, collector.block(block, sigma, layout))
        first = sigma + layout.ranks.get(block.stream, LAST_RANK) * _OF_A_RANK
        rows = _admit(layout, batch, first, watermarks, block, arrivals)
        sigma += block.rows.num_rows
        if rows is None:
            continue
        for relation in by_stream[block.stream]:
            if relation.id in broken:
                continue
            try:
                kept = filtered(relation, rows)
            except EVALUATION as error:
                failed(relation.id, error)
                broken.add(relation.id)
                continue
            if kept.num_rows:
                pieces[relation.id].append(kept)
    arrivals.next_sigma = sigma + LAST_RANK * _OF_A_RANK
    check_count(sum(m.input for m in arrivals.meters.values()), tasks)
    for relation_id, batches in pieces.items():
        if relation_id in broken:
            continue
        table = pa.concat_batches(batches) if len(batches) > 1 else batches[0]
        arrivals.tables[relation_id] = BatchTable(table)
    return arrivals


def check_count(tuples: int, tasks: int) -> None:
    """Check the number of tuples that one of ``tasks`` tasks has read in one batch.

    Raises:
        PipelineError: ``tuples`` exceeds the number of sigmas of a task.
    """
    most = _OF_A_RANK // tasks
    if tuples > most:
        raise PipelineError(
            "batch-too-large",
            f"a task read more than {most} tuples of one batch",
            remedy="read less per batch",
        )


def _without_ahead(
    layout: Layout,
    batch: int,
    watermarks: Mapping[str, int],
    newest: int,
    block: Block,
    arrivals: TaskArrivals,
) -> Block:
    """Reject and count the future tuples of ``block`` (event time after ``newest``)."""
    spec = layout.streams.get(block.stream)
    if spec is None or spec.event_time is None or block.rows.num_rows == 0:
        return block
    times = block.rows.column(spec.event_time).view(pa.int64())
    greatest = pc.max(times).as_py()
    if greatest is None or greatest <= newest:
        return block
    ahead = pc.greater(times, newest).fill_null(False)
    rows = block.rows.filter(ahead)
    arrivals.count(block.stream, StreamMeter(rows.num_rows, ahead=rows.num_rows))
    if spec.keep_late:
        found = aside(rows, "ahead", batch, watermarks.get(block.stream))
        arrivals.aside[block.stream].append(found)
    return replace(block, rows=block.rows.filter(pc.invert(ahead)))


def _admit(
    layout: Layout,
    batch: int,
    first: int,
    watermarks: Mapping[str, int],
    block: Block,
    arrivals: TaskArrivals,
) -> pa.RecordBatch | None:
    """Return the block's tuples that are valid and not late, with ``#sigma`` (and ``#tau``)."""
    rows = block.rows
    arrivals.count(block.stream, StreamMeter(rows.num_rows))
    spec = layout.streams.get(block.stream)
    watermark = watermarks.get(block.stream)
    if block.invalid is not None:
        invalid = block.invalid.num_rows
        arrivals.count(block.stream, StreamMeter(invalid, invalid=invalid))
        if spec is not None and spec.keep_late:
            kept_aside = aside(block.invalid, "invalid", batch, watermark)
            arrivals.aside[block.stream].append(kept_aside)
    if spec is None or rows.num_rows == 0:
        return None
    weight = None
    if spec.changes is not None:
        weight, unknown = weights_of(rows, spec.changes)
        if unknown is not None:
            arrivals.count(block.stream, StreamMeter(invalid=unknown.true_count))
            if spec.keep_late:
                found = aside(rows.filter(unknown), "invalid", batch, watermark)
                arrivals.aside[block.stream].append(found)
            rows = rows.filter(pc.invert(unknown))
            if not rows.num_rows:
                return None
    sigma = first + np.arange(rows.num_rows, dtype=np.int64)
    columns, names = rows.columns, rows.schema.names
    if spec.changes is not None:
        if spec.changes.operation is not None:
            place = names.index(spec.changes.operation)
            del columns[place], names[place]
    elif spec.is_weighted:
        weight = pa.repeat(pa.scalar(1, pa.int8()), rows.num_rows)
    if weight is not None:
        columns, names = [*columns, weight], [*names, TUPLE_WEIGHT]
    columns, names = [*columns, pa.array(sigma)], [*names, SIGMA]
    if spec.event_time is None:
        if not spec.is_ordered:
            return pa.RecordBatch.from_arrays(columns, names=names)
        columns.append(pa.array(block.position + np.arange(rows.num_rows, dtype=np.int64)))
        return _latest_of(spec, pa.RecordBatch.from_arrays(columns, names=[*names, TAU]))
    times = rows.column(spec.event_time)

    def set_aside(which: NDArray[np.bool_], reason: str) -> None:
        if spec.keep_late and which.any():
            picked = rows.take(pa.array(np.flatnonzero(which)))
            arrivals.aside[block.stream].append(aside(picked, reason, batch, watermark))

    kept: NDArray[np.bool_] | None = None
    if times.null_count:
        kept = times.is_valid().to_numpy(zero_copy_only=False)
        arrivals.count(block.stream, StreamMeter(invalid=times.null_count))
        set_aside(~kept, "invalid")
        if times.null_count == rows.num_rows:
            return None
    tau = times.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    newest = int(tau.max() if kept is None else tau[kept].max())
    arrivals.count(block.stream, StreamMeter(max_tau=newest))
    if watermark is not None:
        timely = tau >= watermark
        late = ~timely if kept is None else ~timely & kept
        arrivals.count(block.stream, StreamMeter(late=int(late.sum())))
        set_aside(late, "late")
        kept = timely if kept is None else timely & kept
    if kept is None or kept.any():
        oldest = int(tau.min() if kept is None else tau[kept].min())
        arrivals.count(block.stream, StreamMeter(min_tau=oldest))
    columns.append(pa.array(tau))
    names.append(TAU)
    admitted = pa.RecordBatch.from_arrays(columns, names=names)
    if kept is not None and not kept.all():
        admitted = admitted.take(pa.array(np.flatnonzero(kept)))
    admitted = _latest_of(spec, admitted)
    return admitted if admitted.num_rows else None


def _latest_of(spec: Stream, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the rows of a block that no other row of the block supersedes."""
    if not spec.row_key or not rows.num_rows:
        return rows
    gone = superseded([rows.column(c) for c in spec.row_key], fixed(rows.column(TAU), np.int64))
    return rows.take(pa.array(np.flatnonzero(~gone))) if gone.any() else rows


def filtered(relation: Relation, rows: pa.RecordBatch) -> pa.RecordBatch:
    """Return the arriving rows that pass the relation's filter.

    Raises:
        ExpressionError: the filter fails on a row.
    """
    if not relation.filter:
        return rows
    mask = filter_mask(relation.filter, lambda c: rows.column(c.name), rows.num_rows)
    if mask is None or mask.all():
        return rows
    return rows.take(pa.array(np.flatnonzero(mask)))
