"""Writing to stores: partitions rows, builds their indexes, appends segments; merges segments."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from anabranch_contract.plans.ruleset import IndexSpec, StoreId, StoreSpec
from anabranch_contract.queries.changes import TUPLE_WEIGHT
from anabranch_contract.queries.joins import AttrRef
from anabranch_runtime.columns.arrays import Bools, fixed
from anabranch_runtime.epochs.annihilation import Boundaries
from anabranch_runtime.epochs.layout import Layout, StoreLayout
from anabranch_runtime.errors import AnabranchRuntimeError
from anabranch_runtime.expressions.failures import EVALUATION
from anabranch_runtime.index.gather import BatchTable
from anabranch_runtime.index.hash_index import build_index, merge_indexes
from anabranch_runtime.index.keys import KeyVector, key_vector, mix, partition_of
from anabranch_runtime.index.latest import ranked, superseded
from anabranch_runtime.storage.partial import Partial
from anabranch_runtime.storage.segment import (
    OFFSET_BITS,
    SIGMA,
    TAU,
    IndexKey,
    PackWriter,
    SegmentReader,
)
from anabranch_runtime.task.weights import cancelled

#: Function that returns the key columns of an index for the rows of a segment.
ColumnsOf = Callable[[SegmentReader], list[pa.Array]]
KeysOf = Callable[[Sequence[tuple[AttrRef, str]]], KeyVector]
#: Key vectors that have been computed for a table: (attributes, types) -> vector.
KeyCache = dict[tuple[tuple[AttrRef, ...], tuple[str, ...]], KeyVector]


def insert(
    writer: PackWriter,
    layout: Layout,
    spec: StoreSpec,
    rows: pa.RecordBatch,
    cache: KeyCache,
    failed: Callable[[StoreId, IndexSpec, AnabranchRuntimeError], None] | None = None,
    own: Bools | None = None,
    *,
    past: bool = False,
) -> int:
    """Append ``rows`` to the store of ``spec``: one segment per partition that gets rows.

    Args:
        failed: called with each index whose key can't be evaluated.
        own: mask of the partitions to write; rows of other partitions are skipped. None: all.
        past: whether the rows belong to earlier batches; then rows of hot values are not spread.

    Returns:
        Number of written rows.

    An index whose key can't be evaluated is left out, after a call of ``failed``; a later probe by
    this key evaluates it again, and fails. A row whose partition attribute can't be evaluated is
    put into the partition of NULL, since other probes may need the row.

    Raises:
        ExpressionError, KeyTypeError: an index's key can't be evaluated, and ``failed`` is None.
    """
    store = layout.stores[spec.id]
    keys = _keys_of(layout, store, rows, cache)
    usable = []
    for index in spec.indexes:
        try:
            keys(index)
        except EVALUATION as error:
            if failed is None:
                raise
            failed(spec.id, index, error)
        else:
            usable.append(index)
    members = () if store.is_base else spec.members
    done = 0
    for partition, chosen in _partitions(layout, spec, rows, cache, own, past=past):
        part = rows if chosen is None else rows.take(pa.array(chosen))
        indexes = [
            (index_key(store, index), build_index(_subset(keys(index), chosen))) for index in usable
        ]
        writer.add(part, store=spec.id, partition=partition, members=members, indexes=indexes)
        done += part.num_rows
    return done


def _keys_of(layout: Layout, store: StoreLayout, rows: pa.RecordBatch, cache: KeyCache) -> KeysOf:
    """Return a function that returns key vectors of ``rows``, computing each once."""
    table = BatchTable(rows)

    def keys(parts: Sequence[tuple[AttrRef, str]]) -> KeyVector:
        refs, types = tuple(r for r, _ in parts), tuple(t for _, t in parts)
        if (refs, types) not in cache:
            arrays = [layout.stored(store, table, rows.num_rows, r) for r in refs]
            cache[refs, types] = key_vector(arrays, types)
        return cache[refs, types]

    return keys


def merge(
    writer: PackWriter,
    layout: Layout,
    spec: StoreSpec,
    readers: Sequence[SegmentReader],
    since: Mapping[str, int],
    boundaries: Boundaries,
) -> None:
    """Write one segment with the rows of all ``readers`` (one store, one partition), without
    superseded rows, and without tuples and deletes that cancel each other out.

    Args:
        since: stream that keeps the latest per key -> first batch whose tuples supersede others.
    """
    store = layout.stores[spec.id]
    gone = _superseded(layout, spec, readers, since)
    if gone is None and store.is_base:
        gone = _annihilated(layout, spec, readers, boundaries)
    if gone is not None and gone.any():
        _write_rest(writer, layout, spec, readers, gone)
        return

    def columns_of(index: IndexSpec) -> ColumnsOf:
        def columns(reader: SegmentReader) -> list[pa.Array]:
            return [layout.stored(store, reader, reader.segment.rows, ref) for ref, _ in index]

        return columns

    indexes = [(index_key(store, index), columns_of(index)) for index in spec.indexes]
    merge_segments(writer, readers, () if store.is_base else spec.members, indexes)


def merge_segments(
    writer: PackWriter,
    readers: Sequence[SegmentReader],
    members: Sequence[str],
    indexes: Sequence[tuple[IndexKey, ColumnsOf]],
) -> None:
    """Merge segments: write one segment with the concatenated rows of all ``readers``.

    An index is left out where a key of some row can't be evaluated (see :func:`insert`).

    Args:
        writer: writes the pack of the new segment.
        readers: segments of one store partition.
        members: the members of an MIR's store; empty for a base store.
        indexes: keys of the new segment's indexes, each with a reader of its columns.
    """
    rows = _all_rows(readers)
    merged = []
    for key, columns in indexes:
        parts = []
        for reader in readers:
            try:
                index = reader.index(key, lambda: columns(reader))  # noqa: B023 - called at once
            except EVALUATION:
                break
            parts.append((index, reader.segment.rows))
        else:
            merged.append((key, merge_indexes(parts)))
    first = readers[0].segment
    writer.add(
        rows,
        store=first.store,
        partition=first.partition,
        members=members,
        indexes=merged,
        level=1 + max(r.segment.level for r in readers),
    )


def _all_rows(readers: Sequence[SegmentReader]) -> pa.RecordBatch:
    """Return the rows of all ``readers``, with the columns of the newest segments."""
    return pa.concat_batches([r.complete for r in readers])


def _superseded(
    layout: Layout, spec: StoreSpec, readers: Sequence[SegmentReader], since: Mapping[str, int]
) -> Bools | None:
    """Return the mask of rows with a member that a later tuple here supersedes; None if none is.

    Rows that tuples of other segments supersede are found once those segments are merged, too.
    """
    store = layout.stores[spec.id]
    gone: Bools | None = None
    for member, relation in zip(spec.members, spec.relations, strict=True):
        stream = layout.streams[layout.relations[relation].stream]
        first = since.get(stream.name)
        if first is None or stream.is_weighted:
            continue

        def column(name: str) -> pa.Array:
            return pa.concat_arrays([r.column(name) for r in readers])

        suffix = "" if store.is_base else f":{member}"
        tau, sigma = (fixed(column(n + suffix), np.int64) for n in (TAU, SIGMA))
        keys = [column(store.column(member, c)) for c in stream.latest]
        found = superseded(keys, tau, by=sigma >> OFFSET_BITS >= first)
        gone = found if gone is None else gone | found
    return gone


def _annihilated(
    layout: Layout, spec: StoreSpec, readers: Sequence[SegmentReader], boundaries: Boundaries
) -> Bools | None:
    """Return the mask of rows that a merge drops: tuples and deletes that cancel each other out,
    and tombstones with later rows of their key; None if there are none."""
    stream = layout.streams[layout.relations[spec.relations[0]].stream]
    cells = boundaries.get(stream.name)
    if cells is None:
        return None
    rows = _all_rows(readers)
    batch = fixed(rows.column(SIGMA), np.int64) >> OFFSET_BITS
    weight = fixed(rows.column(TUPLE_WEIGHT), np.int8).astype(np.int64)
    order = np.lexsort((-weight, batch))
    if stream.replaces_rows:
        # The delete of a replaced row has the position of the row that replaces it.
        tau = fixed(rows.column(TAU), np.int64)
        order = np.lexsort((weight, tau, batch))
    ranks = np.empty_like(order)
    ranks[order] = np.arange(len(order))
    gone = cancelled(rows, [name for name, _ in stream.columns], batch, ranks, cells)
    if stream.replaces_rows and gone is not None:
        keys = [rows.column(c) for c in stream.row_key]
        gone |= superseded(keys, ranked(batch, tau), by=weight >= 0) & (weight == 0)
    return gone


def _write_rest(
    writer: PackWriter,
    layout: Layout,
    spec: StoreSpec,
    readers: Sequence[SegmentReader],
    gone: Bools,
) -> None:
    """Write one segment of the rows of ``readers`` that are not ``gone``. If all are gone, one row
    is kept, as no segment is empty.

    If fewer than half of the rows remain, the segment stays on the merge level of ``readers``,
    since it is about as large as one of these.
    """
    store = layout.stores[spec.id]
    kept = np.flatnonzero(~gone)
    kept = kept if len(kept) else np.zeros(1, np.int64)
    rows = _all_rows(readers).take(pa.array(kept))
    table = BatchTable(rows)
    indexes = []
    for index in spec.indexes:
        try:
            columns = [layout.stored(store, table, rows.num_rows, ref) for ref, _ in index]
            keys = key_vector(columns, [kind for _, kind in index])
        except EVALUATION:
            continue
        indexes.append((index_key(store, index), build_index(keys)))
    grown = 2 * len(kept) >= len(gone)
    writer.add(
        rows,
        store=spec.id,
        partition=readers[0].segment.partition,
        members=() if store.is_base else spec.members,
        indexes=indexes,
        level=max(r.segment.level for r in readers) + grown,
    )


def combination_rows(layout: Layout, spec: StoreSpec, partial: Partial) -> pa.RecordBatch:
    """Return the rows to store in an MIR's store for ``partial``, whose labels are its members."""
    names, arrays = [], []
    for label, column in spec.columns:
        names.append(f"{label}.{column}")
        arrays.append(partial.column(label, column))
    for label in spec.members:
        names.append(f"{SIGMA}:{label}")
        arrays.append(pa.array(partial.sigma(label)))
        if layout.has_event_time(label):
            names.append(f"{TAU}:{label}")
            arrays.append(pa.array(partial.tau(label)))
    return pa.RecordBatch.from_arrays(arrays, names=names)


def index_key(store: StoreLayout, index: IndexSpec) -> IndexKey:
    """Return the key of a store's ``index``, as columns of the store's segments."""
    return IndexKey(
        tuple(store.column(r.label, r.attribute) for r, _ in index), tuple(t for _, t in index)
    )


def partition_numbers(
    layout: Layout, spec: StoreSpec, rows: pa.RecordBatch, cache: KeyCache, *, past: bool = False
) -> NDArray[np.int64]:
    """Return the partition of each row of a store, as a function of the row alone.

    A row whose partition attribute is NULL goes to partition 0: no probe by this attribute matches
    it, but probes by other attributes may. In a store without partition attribute, the row's sigma
    decides. The sigma also chooses among the partitions of a hot value, except for rows of the
    ``past``, since a hot value's entry states the batches of its spread rows (``state.dealt``), and
    past rows belong to earlier batches.
    """
    if spec.partitions == 1:
        return np.zeros(rows.num_rows, np.int64)
    store = layout.stores[spec.id]
    if spec.partition is None:
        name = SIGMA if store.is_base else f"{SIGMA}:{spec.members[0]}"
        return fixed(rows.column(name), np.int64) % spec.partitions
    try:
        vector = _keys_of(layout, store, rows, cache)([spec.partition])
    except EVALUATION:
        vector = _stored_keys(layout, store, rows, spec.partition)
    number = partition_of(vector.hashes, spec.partitions)
    dealt = None if past else store.dealt_rows
    if dealt is not None:
        number = dealt.written(vector.hashes, number, lambda: _arrived(store, rows))
    return number if vector.valid is None else np.where(vector.valid, number, 0)


def _arrived(store: StoreLayout, rows: pa.RecordBatch) -> NDArray[np.int64]:
    """Return a number per row, derived from its sigma; nearly all are different."""
    if store.is_base:
        return fixed(rows.column(SIGMA), np.int64)
    found = np.zeros(rows.num_rows, np.uint64)
    for member in store.members:
        found = mix(found + fixed(rows.column(f"{SIGMA}:{member}"), np.int64).view(np.uint64))
    return found.view(np.int64)


def _partitions(
    layout: Layout,
    spec: StoreSpec,
    rows: pa.RecordBatch,
    cache: KeyCache,
    own: Bools | None,
    *,
    past: bool,
) -> list[tuple[int, NDArray[np.int64] | None]]:
    """Return (partition, positions of its rows; None: all rows) for each partition of ``own``
    (None: any) with rows. Without ``own`` and partition attribute, rows are cut into equal runs."""
    length = rows.num_rows
    if spec.partitions == 1 or length == 0:
        return [(0, None)] if length and (own is None or own[0]) else []
    if spec.partition is None and own is None:
        number = np.arange(length, dtype=np.int64) * spec.partitions // length
    else:
        number = partition_numbers(layout, spec, rows, cache, past=past)
    order = np.argsort(number, kind="stable")
    cuts = np.searchsorted(number[order], np.arange(spec.partitions + 1))
    return [
        (p, order[cuts[p] : cuts[p + 1]])
        for p in range(spec.partitions)
        if cuts[p] < cuts[p + 1] and (own is None or own[p])
    ]


def _stored_keys(
    layout: Layout, store: StoreLayout, rows: pa.RecordBatch, part: tuple[AttrRef, str]
) -> KeyVector:
    """Return the keys of ``rows`` of a store; NULL where a key can't be evaluated."""
    ref, kind = part

    def keys(first: int, last: int) -> KeyVector:
        some = rows.slice(first, last - first)
        return key_vector([layout.stored(store, BatchTable(some), last - first, ref)], [kind])

    return lenient_keys(rows.num_rows, keys)


def lenient_keys(length: int, keys: Callable[[int, int], KeyVector]) -> KeyVector:
    """Return the keys of ``length`` rows; a key that can't be evaluated is NULL. Such rows are few,
    so they are found by halving.

    Args:
        keys: returns the keys of the rows from its first argument to before its second.
    """

    def found(first: int, last: int) -> KeyVector:
        try:
            return keys(first, last)
        except EVALUATION:
            if last - first < 2:
                none = np.zeros(last - first, np.uint64)
                return KeyVector(none, none.astype(np.bool_), exact=False)
        middle = (first + last) // 2
        halves = [found(first, middle), found(middle, last)]
        valid = [np.ones(len(h), np.bool_) if h.valid is None else h.valid for h in halves]
        return KeyVector(
            np.concatenate([h.hashes for h in halves]),
            np.concatenate(valid),
            exact=all(h.exact for h in halves),
        )

    return found(0, length)


def _subset(keys: KeyVector, chosen: NDArray[np.int64] | None) -> KeyVector:
    if chosen is None:
        return keys
    valid = None if keys.valid is None else keys.valid[chosen]
    return KeyVector(keys.hashes[chosen], valid, keys.exact)


def kept_part(layout: Layout, spec: StoreSpec, made: Partial) -> Partial:
    """Return those results in ``made`` that the MIR's store keeps (by ``StoreSpec.kept``)."""
    kept = spec.kept
    if kept is None:
        return made
    keys = probed_keys(layout, made, kept.attribute, kept.type)
    mask = np.isin(keys.hashes, np.array(kept.hashes, np.uint64), invert=not kept.listed)
    # A row whose key can't be evaluated is stored, too.
    return made.where(mask if keys.valid is None else mask | ~keys.valid)


def probed_keys(layout: Layout, rows: Partial, attribute: AttrRef, kind: str) -> KeyVector:
    """Return the keys of ``rows`` by one attribute; a key that can't be evaluated is NULL."""
    return lenient_keys(
        rows.length,
        lambda first, last: key_vector([layout.probed(rows.cut(first, last), attribute)], [kind]),
    )
